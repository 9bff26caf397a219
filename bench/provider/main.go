// The Kubernetes provider of Pulumi without its generated schema, which its module does not carry and which preview and up do not read.
// An SDK in Go that names the provider's resource needs the package's import path, which the true schema gives as well.
package main

import "github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"

// The version that the SDK of this project asks for; the code is older, see docs/limits in the live suite.
const version = "4.34.2"

const importPath = "github.com/pulumi/pulumi-kubernetes/sdk/v4/go/kubernetes"

func main() {
	schema := `{"name":"kubernetes","version":"` + version + `","language":{"go":{"importBasePath":"` + importPath + `"}}}`
	provider.Serve("kubernetes", version, []byte(schema), []byte(`{}`))
}
