package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

const efa = corev1.ResourceName("vpc.amazonaws.com/efa")

// launchGrace covers the time between a launch and the claim's label, in which a reservation would be counted too low.
const launchGrace = 10 * time.Second

// cloud is Karpenter's kwok cloud provider with the NodeClass of Auto Mode, counted reservations and faults on demand.
type cloud struct {
	*kwok.CloudProvider
	client client.Client
	types  []*cloudprovider.InstanceType
	faults *faults

	mu   sync.Mutex
	used map[types.UID]use // by node claim
}

type use struct {
	reservation string
	since       time.Time
}

func newCloud(ctx context.Context, c client.Client, all []*cloudprovider.InstanceType, f *faults) *cloud {
	for _, t := range all {
		// the catalogue gives what pods may use, so nothing is held back again
		t.Overhead = &cloudprovider.InstanceTypeOverhead{}
		for _, o := range t.Offerings {
			if o.CapacityType() != v1.CapacityTypeReserved {
				o.Requirements.Add(scheduling.NewRequirement(reservationLabel, corev1.NodeSelectorOpDoesNotExist))
			}
		}
		liftCommonLabels(t)
	}
	shim := classShim{c}
	return &cloud{CloudProvider: kwok.NewCloudProvider(ctx, shim, all), client: shim, types: all, faults: f, used: map[types.UID]use{}}
}

// liftCommonLabels moves what all offerings of a type share to the type, where pools' requirements are matched.
func liftCommonLabels(t *cloudprovider.InstanceType) {
	for key, first := range t.Offerings[0].Requirements {
		if t.Requirements.Has(key) || first.Operator() != corev1.NodeSelectorOpIn {
			continue
		}
		differs := func(o *cloudprovider.Offering) bool { return o.Requirements.Get(key).Any() != first.Any() }
		if !slices.ContainsFunc(t.Offerings, differs) {
			t.Requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, first.Values()...))
		}
	}
}

// Name is part of CloudProvider.
func (c *cloud) Name() string { return "standin" }

// GetSupportedNodeClasses is part of CloudProvider; pools with another class are ignored.
func (c *cloud) GetSupportedNodeClasses() []status.Object { return []status.Object{&NodeClass{}} }

// GetInstanceTypes is part of CloudProvider.
func (c *cloud) GetInstanceTypes(ctx context.Context, pool *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return c.now(ctx, pool.Spec.Template.Spec.NodeClassRef.Name)
}

// Create launches the cheapest offering that no fault refuses, as an EC2 fleet does over its overrides.
func (c *cloud) Create(ctx context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	all, err := c.now(ctx, claim.Spec.NodeClassRef.Name)
	if err != nil {
		return nil, err
	}
	refused := []string{}
	for _, one := range candidates(all, claim) {
		passes, err := c.faults.launch(one.instance, one.offering)
		if err != nil {
			return nil, err
		}
		if passes {
			return c.launch(ctx, claim, one.instance, one.offering)
		}
		refused = append(refused, offeringKey(one.instance, one.offering))
	}
	return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("no capacity left, refused %v", refused))
}

type candidate struct {
	instance *cloudprovider.InstanceType
	offering *cloudprovider.Offering
}

func candidates(all []*cloudprovider.InstanceType, claim *v1.NodeClaim) (found []candidate) {
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	for _, t := range all {
		if wanted.Get(corev1.LabelInstanceTypeStable).Has(t.Name) {
			for _, o := range t.Offerings.Available().Compatible(wanted) {
				found = append(found, candidate{t, o})
			}
		}
	}
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(a.offering.Price, b.offering.Price) })
	return found
}

func (c *cloud) launch(ctx context.Context, claim *v1.NodeClaim, t *cloudprovider.InstanceType, o *cloudprovider.Offering) (*v1.NodeClaim, error) {
	if o.CapacityType() == v1.CapacityTypeReserved {
		c.mu.Lock()
		c.used[claim.UID] = use{o.ReservationID(), time.Now()}
		c.mu.Unlock()
	}
	capacity := t.Capacity.DeepCopy()
	if asked := claim.Spec.Resources.Requests[efa]; asked.IsZero() && !capacity.Name(efa, resource.DecimalSI).IsZero() {
		// EFA interfaces appear as a resource only where a pod asks for them
		capacity[efa] = resource.MustParse("0")
	}
	only := &cloudprovider.InstanceType{
		Name: t.Name, Requirements: t.Requirements, Capacity: capacity, Overhead: t.Overhead, Offerings: cloudprovider.Offerings{o},
	}
	exact := claim.DeepCopy()
	// kwok takes the node's capacity from the requests
	exact.Spec.Resources.Requests = capacity
	for i := range exact.Spec.Requirements {
		if r := &exact.Spec.Requirements[i]; r.Key == corev1.LabelInstanceTypeStable {
			r.Operator, r.Values = corev1.NodeSelectorOpIn, []string{t.Name}
		}
	}
	return kwok.NewCloudProvider(ctx, c.client, []*cloudprovider.InstanceType{only}).Create(ctx, exact)
}

// now returns copies of the types with availability and reservations as they are.
func (c *cloud) now(ctx context.Context, nodeClass string) ([]*cloudprovider.InstanceType, error) {
	class := &NodeClass{}
	if err := c.client.Get(ctx, types.NamespacedName{Name: nodeClass}, class); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	allowed := class.reservations()
	taken, err := c.taken(ctx)
	if err != nil {
		return nil, err
	}
	var out []*cloudprovider.InstanceType
	for _, t := range c.types {
		fresh := &cloudprovider.InstanceType{Name: t.Name, Requirements: t.Requirements, Capacity: t.Capacity, Overhead: t.Overhead}
		for _, o := range t.Offerings {
			one := *o
			if one.CapacityType() == v1.CapacityTypeReserved {
				if !allowed[one.ReservationID()] {
					continue
				}
				one.ReservationCapacity = max(0, one.ReservationCapacity-taken[one.ReservationID()])
				one.Available = one.ReservationCapacity > 0
			}
			free, err := c.faults.available(t, o)
			if err != nil {
				return nil, err
			}
			one.Available = one.Available && free
			fresh.Offerings = append(fresh.Offerings, &one)
		}
		out = append(out, fresh)
	}
	return out, nil
}

// taken counts the instances of each reservation that node claims hold.
func (c *cloud) taken(ctx context.Context) (map[string]int, error) {
	claims := &v1.NodeClaimList{}
	if err := c.client.List(ctx, claims); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	live := map[types.UID]bool{}
	for _, claim := range claims.Items {
		live[claim.UID] = true
		if id := claim.Labels[reservationLabel]; id != "" {
			c.used[claim.UID] = use{reservation: id}
		}
	}
	taken := map[string]int{}
	for uid, u := range c.used {
		if !live[uid] && time.Since(u.since) > launchGrace {
			delete(c.used, uid)
			continue
		}
		taken[u.reservation]++
	}
	return taken, nil
}

func offeringKey(t *cloudprovider.InstanceType, o *cloudprovider.Offering) string {
	key := t.Name + "/" + o.Zone() + "/" + o.CapacityType()
	if o.CapacityType() == v1.CapacityTypeReserved {
		key += "/" + o.ReservationID()
	}
	return key
}

// classShim answers the kwok provider, which reads a KWOKNodeClass, from the NodeClass of the same name.
type classShim struct{ client.Client }

// Get is part of client.Client.
func (s classShim) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	wanted, isClass := object.(*v1alpha1.KWOKNodeClass)
	if !isClass {
		return s.Client.Get(ctx, key, object, opts...)
	}
	class := &NodeClass{}
	if err := s.Client.Get(ctx, key, class, opts...); err != nil {
		return err
	}
	wanted.Name, wanted.Generation, wanted.Status.Conditions = class.Name, class.Generation, class.Status.Conditions
	return nil
}
