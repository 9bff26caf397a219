// The Kubernetes provider of Pulumi without its generated schema, which its module does not carry and which preview and up do not read.
package main

import "github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"

// The version that the SDK of this project asks for; the code is older, see docs/limits in the live suite.
const version = "4.34.2"

func main() {
	provider.Serve("kubernetes", version, []byte(`{"name":"kubernetes","version":"`+version+`"}`), []byte(`{}`))
}
