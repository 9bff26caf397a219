// GPU pools and one model on an EKS Auto Mode cluster that exists, with its LeaderWorkerSet controller.
package main

import (
	disagg "example.com/pulumi-disagg-serving/sdk/go/disaggserving"
	"github.com/pulumi/pulumi-kubernetes/sdk/v4/go/kubernetes"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error {
		settings := config.New(ctx, "")
		zone := settings.Require("zone")
		cluster, err := kubernetes.NewProvider(ctx, "cluster", &kubernetes.ProviderArgs{
			Kubeconfig: pulumi.String(settings.Require("kubeconfig")),
		})
		if err != nil {
			return err
		}
		llama := disagg.ModelSpecArgs{
			Name:        "llama-70b",
			Model:       "llama-3.3-70b-instruct-fp8",
			MaxModelLen: pulumi.IntRef(32768),
			Prefill: &disagg.RoleSpecArgs{
				InstanceType:   "p5.48xlarge",
				Replicas:       pulumi.IntRef(2),
				TensorParallel: pulumi.IntRef(4),
			},
			Decode: &disagg.RoleSpecArgs{
				InstanceType:   "p5.48xlarge",
				Replicas:       pulumi.IntRef(4),
				TensorParallel: pulumi.IntRef(2),
			},
		}
		pools, err := disagg.NewNodePools(ctx, "gpu", &disagg.NodePoolsArgs{
			Models:           []disagg.ModelSpecArgs{llama},
			Zone:             zone,
			NodeRole:         pulumi.String("platform-gpu-node"),
			SubnetIds:        pulumi.ToStringArray([]string{settings.Require("subnetId")}),
			SecurityGroupIds: pulumi.ToStringArray([]string{settings.Require("securityGroupId")}),
		}, pulumi.Providers(cluster))
		if err != nil {
			return err
		}
		serving, err := disagg.NewModelServing(ctx, "llama-70b", &disagg.ModelServingArgs{
			Model: llama,
			Zone:  pulumi.StringRef(zone),
		}, pulumi.Providers(cluster), pulumi.DependsOn([]pulumi.Resource{pools}))
		if err != nil {
			return err
		}
		ctx.Export("services", serving.ServiceNames)
		ctx.Export("poolNames", pools.PoolNames)
		return nil
	})
}
