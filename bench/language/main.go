// Language hosts of the bench for programs in TypeScript and Go: the released ones are in no module. SDKs come from the generators that
// the released hosts call; programs run with Pulumi's own SDKs. The program's name says which language it is for, and the engine passes
// its address as the last argument.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	golang "github.com/pulumi/pulumi/pkg/v3/codegen/go"
	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// nodeReported is the exit code with which Node programs say that their error is in the log already.
const nodeReported = 32

type host struct {
	pulumirpc.UnimplementedLanguageRuntimeServer
	language, engine string
}

func (h *host) Handshake(context.Context, *pulumirpc.LanguageHandshakeRequest) (*pulumirpc.LanguageHandshakeResponse, error) {
	return &pulumirpc.LanguageHandshakeResponse{}, nil
}

func (h *host) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: "3.276.0"}, nil
}

// GetRequiredPackages names none: the engine then loads plugins when the program first uses them.
func (h *host) GetRequiredPackages(context.Context, *pulumirpc.GetRequiredPackagesRequest) (*pulumirpc.GetRequiredPackagesResponse, error) {
	return &pulumirpc.GetRequiredPackagesResponse{}, nil
}

func (h *host) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// GeneratePackage writes the SDK of a schema.
func (h *host) GeneratePackage(_ context.Context, req *pulumirpc.GeneratePackageRequest) (*pulumirpc.GeneratePackageResponse, error) {
	loader, err := schema.NewLoaderClient(req.LoaderTarget)
	if err != nil {
		return nil, err
	}
	defer loader.Close()
	var spec schema.PackageSpec
	if err := json.Unmarshal([]byte(req.Schema), &spec); err != nil {
		return nil, err
	}
	cached := schema.NewCachedLoader(loader)
	pkg, found, err := schema.BindSpec(spec, cached, schema.ValidationOptions{AllowDanglingReferences: true})
	if err != nil {
		return nil, err
	}
	answer := &pulumirpc.GeneratePackageResponse{Diagnostics: plugin.HclDiagnosticsToRPCDiagnostics([]*hcl.Diagnostic(found))}
	if found.HasErrors() {
		return answer, nil
	}
	var files map[string][]byte
	if h.language == "nodejs" {
		files, err = nodejs.GeneratePackage(filepath.Base(os.Args[0]), pkg, req.ExtraFiles, req.LocalDependencies, req.Local, cached)
	} else {
		files, err = golang.GeneratePackage(filepath.Base(os.Args[0]), pkg, req.LocalDependencies)
	}
	if err != nil {
		return nil, err
	}
	for name, content := range files {
		path := filepath.Join(req.Directory, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// Link has nothing to add: the examples name the folder of the SDK in their package.json and go.mod.
func (h *host) Link(context.Context, *pulumirpc.LinkRequest) (*pulumirpc.LinkResponse, error) {
	return &pulumirpc.LinkResponse{}, nil
}

// InstallDependencies fetches what a program needs, by its language's own tool.
func (h *host) InstallDependencies(
	req *pulumirpc.InstallDependenciesRequest, stream grpc.ServerStreamingServer[pulumirpc.InstallDependenciesResponse],
) error {
	command := exec.CommandContext(stream.Context(), "go", "mod", "download")
	if h.language == "nodejs" {
		command = exec.CommandContext(stream.Context(), "npm", "install", "--no-audit", "--no-fund", "--prefer-offline")
	}
	command.Dir = req.Info.ProgramDirectory
	said, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, said)
	}
	return stream.Send(&pulumirpc.InstallDependenciesResponse{Stdout: said})
}

// Run runs the program of a folder and waits for its end.
func (h *host) Run(ctx context.Context, req *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	config, err := json.Marshal(req.Config)
	if err != nil {
		return nil, err
	}
	secretKeys, err := json.Marshal(req.ConfigSecretKeys)
	if err != nil {
		return nil, err
	}
	folder := req.Info.ProgramDirectory
	settings := [][2]string{
		{"organization", req.Organization},
		{"project", req.Project},
		{"stack", req.Stack},
		{"parallel", strconv.Itoa(int(req.Parallel))},
		{"monitor", req.MonitorAddress},
		{"engine", h.engine},
	}
	env := append(os.Environ(), "PULUMI_CONFIG="+string(config), "PULUMI_CONFIG_SECRET_KEYS="+string(secretKeys))
	var command *exec.Cmd
	if h.language == "nodejs" {
		args := []string{filepath.Join(folder, "node_modules/@pulumi/pulumi/cmd/run"), "--pwd=" + req.Pwd, "--root-directory=" + req.Info.RootDirectory}
		for _, setting := range settings {
			args = append(args, "--"+setting[0]+"="+setting[1])
		}
		if req.DryRun {
			args = append(args, "--dry-run")
		}
		command = exec.CommandContext(ctx, "node", append(args, folder)...)
		env = append(env, "PULUMI_NODEJS_TYPESCRIPT=true")
	} else {
		program := filepath.Join(os.TempDir(), fmt.Sprintf("pulumi-go-%d", os.Getpid()))
		defer os.Remove(program)
		build := exec.CommandContext(ctx, "go", "build", "-o", program, folder)
		build.Dir, build.Stdout, build.Stderr = folder, os.Stdout, os.Stderr
		if err := build.Run(); err != nil {
			return &pulumirpc.RunResponse{Error: "the program does not compile: " + err.Error()}, nil
		}
		command = exec.CommandContext(ctx, program)
		for _, setting := range settings {
			env = append(env, "PULUMI_"+strings.ToUpper(setting[0])+"="+setting[1])
		}
		env = append(env, "PULUMI_ROOT_DIRECTORY="+req.Info.RootDirectory, "PULUMI_DRY_RUN="+strconv.FormatBool(req.DryRun))
	}
	command.Dir, command.Env, command.Stdout, command.Stderr = req.Pwd, env, os.Stdout, os.Stderr
	err = command.Run()
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		reported := h.language == "nodejs" && failed.ExitCode() == nodeReported
		return &pulumirpc.RunResponse{Error: "the program failed: " + err.Error(), Bail: reported}, nil
	case err != nil:
		return nil, err
	}
	return &pulumirpc.RunResponse{}, nil
}

func main() {
	language := strings.TrimPrefix(filepath.Base(os.Args[0]), "pulumi-language-")
	if language != "nodejs" && language != "go" {
		fmt.Fprintln(os.Stderr, "call it pulumi-language-nodejs or pulumi-language-go")
		os.Exit(1)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(400 << 20))
	pulumirpc.RegisterLanguageRuntimeServer(server, &host{language: language, engine: os.Args[len(os.Args)-1]})
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	if err := server.Serve(listener); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
