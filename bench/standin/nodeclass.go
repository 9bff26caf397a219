package main

import (
	"encoding/json"

	"github.com/awslabs/operatorpkg/status"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// NodeClass is eks.amazonaws.com/v1 NodeClass as far as Karpenter cares: conditions are typed, the spec is not, because its schema
// is in no public module.
type NodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              apiextensionsv1.JSON `json:"spec,omitempty"`
	Status            NodeClassStatus      `json:"status,omitempty"`
}

// NodeClassStatus holds the conditions; the CRD's default makes a new NodeClass ready.
type NodeClassStatus struct {
	Conditions []status.Condition `json:"conditions,omitempty"`
}

// NodeClassList is a list of NodeClass.
type NodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeClass `json:"items"`
}

// Controllers look kinds up while they are constructed, so main would be too late.
func init() {
	version := schema.GroupVersion{Group: "eks.amazonaws.com", Version: "v1"}
	metav1.AddToGroupVersion(scheme.Scheme, version)
	scheme.Scheme.AddKnownTypes(version, &NodeClass{}, &NodeClassList{})
}

// StatusConditions is part of status.Object.
func (n *NodeClass) StatusConditions(opts ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions().For(n, opts...)
}

// GetConditions is part of status.Object.
func (n *NodeClass) GetConditions() []status.Condition { return n.Status.Conditions }

// SetConditions is part of status.Object.
func (n *NodeClass) SetConditions(conditions []status.Condition) { n.Status.Conditions = conditions }

// DeepCopyObject is part of runtime.Object.
func (n *NodeClass) DeepCopyObject() runtime.Object {
	out := &NodeClass{TypeMeta: n.TypeMeta, Spec: *n.Spec.DeepCopy()}
	n.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	for _, condition := range n.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *condition.DeepCopy())
	}
	return out
}

// DeepCopyObject is part of runtime.Object.
func (l *NodeClassList) DeepCopyObject() runtime.Object {
	out := &NodeClassList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*NodeClass))
	}
	return out
}

// reservations are the ids that the NodeClass may use.
func (n *NodeClass) reservations() map[string]bool {
	var spec struct {
		Terms []struct {
			ID string `json:"id"`
		} `json:"capacityReservationSelectorTerms"`
	}
	ids := map[string]bool{}
	if json.Unmarshal(n.Spec.Raw, &spec) == nil {
		for _, term := range spec.Terms {
			ids[term.ID] = true
		}
	}
	return ids
}
