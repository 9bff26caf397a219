package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// nlbClass is the class that Auto Mode's load balancer controller answers to.
const nlbClass = "eks.amazonaws.com/nlb"

// nameLoadBalancers gives Services of that class the name of a load balancer, as Auto Mode does when one is there.
func nameLoadBalancers(manager ctrl.Manager) error {
	c := manager.GetClient()
	return ctrl.NewControllerManagedBy(manager).Named("loadbalancer").For(&corev1.Service{}).Complete(
		reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			service := &corev1.Service{}
			if err := c.Get(ctx, request.NamespacedName, service); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			class := service.Spec.LoadBalancerClass
			if class == nil || *class != nlbClass || len(service.Status.LoadBalancer.Ingress) > 0 || service.DeletionTimestamp != nil {
				return reconcile.Result{}, nil
			}
			host := service.Namespace + "-" + service.Name + ".elb.us-east-1.amazonaws.com"
			service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: host}}
			return reconcile.Result{}, c.Status().Update(ctx, service)
		}))
}
