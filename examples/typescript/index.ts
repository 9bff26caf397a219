// GPU pools and one model on an EKS Auto Mode cluster that exists, with its LeaderWorkerSet controller.
import * as disagg from "@pulumi/disagg-serving";
import * as k8s from "@pulumi/kubernetes";
import * as pulumi from "@pulumi/pulumi";

const config = new pulumi.Config();
const zone = config.require("zone");
const cluster = new k8s.Provider("cluster", { kubeconfig: config.require("kubeconfig") });

const llama = {
    name: "llama-70b",
    model: "llama-3.3-70b-instruct-fp8",
    maxModelLen: 32768,
    prefill: { instanceType: "p5.48xlarge", replicas: 2, tensorParallel: 4 },
    decode: { instanceType: "p5.48xlarge", replicas: 4, tensorParallel: 2 },
};

const pools = new disagg.NodePools("gpu", {
    models: [llama],
    zone,
    nodeRole: "platform-gpu-node",
    subnetIds: [config.require("subnetId")],
    securityGroupIds: [config.require("securityGroupId")],
}, { providers: [cluster] });
const serving = new disagg.ModelServing("llama-70b", { model: llama, zone }, { providers: [cluster], dependsOn: [pools] });

export const services = serving.serviceNames;
export const poolNames = pools.poolNames;
