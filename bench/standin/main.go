// Command standin takes the place of EKS Auto Mode on the bench: Karpenter's own controllers over a cloud that only makes node objects.
//
// It accepts eks.amazonaws.com/v1 NodeClass, offers the instance types of the project's catalogue, counts reservations, refuses
// capacity where a test asks for it, and names load balancers. It listens on loopback only.
//
// Environment, besides Karpenter's own: STANDIN_FAULTS, a JSON file read at each launch (see faults.go); STANDIN_REFUSAL, how long
// a refused offering stays unavailable (default 15s; EC2's callers wait 3 minutes).
package main

import (
	"fmt"
	"os"
	"time"

	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
)

// reservationLabel is an assumption: which label Auto Mode puts on reserved nodes is not documented.
const reservationLabel = "eks.amazonaws.com/capacity-reservation-id"

func main() {
	// Karpenter's scheduler panics on reserved offerings while this variable of the provider is empty.
	cloudprovider.ReservationIDLabel = reservationLabel
	cloudprovider.ReservedCapacityLabels.Insert(reservationLabel)
	v1.WellKnownLabels = v1.WellKnownLabels.Insert(reservationLabel)

	ctx, op := newOperator()
	types, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "instance types:", err)
		os.Exit(1)
	}
	refusal, err := time.ParseDuration(os.Getenv("STANDIN_REFUSAL"))
	if err != nil {
		refusal = 15 * time.Second
	}
	bare := newCloud(ctx, op.GetClient(), types, &faults{path: os.Getenv("STANDIN_FAULTS"), refusal: refusal})
	decorated := overlay.Decorate(bare, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), decorated)
	all := controllers.NewControllers(ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, decorated, bare, cluster, op.InstanceTypeStore)
	if err := nameLoadBalancers(op.Manager); err != nil {
		fmt.Fprintln(os.Stderr, "load balancers:", err)
		os.Exit(1)
	}
	op.WithControllers(ctx, all...).Start(ctx)
}
