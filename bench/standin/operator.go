package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/awslabs/operatorpkg/serrors"
	"github.com/go-logr/zapr"
	"github.com/samber/lo"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// newOperator builds Karpenter's operator by hand: its own constructor binds metrics and probes to every interface.
func newOperator() (context.Context, *operator.Operator) {
	ctx := injection.WithOptionsOrDie(context.Background(), options.Injectables...)
	settings := options.FromContext(ctx)
	logger := serrors.NewLogger(zapr.NewLogger(logging.NewLogger(ctx, "standin")))
	log.SetLogger(logger)
	klog.SetLogger(logger)

	config := ctrl.GetConfigOrDie()
	config.QPS, config.Burst, config.UserAgent = float32(settings.KubeClientQPS), settings.KubeClientBurst, "standin"
	manager := lo.Must(ctrl.NewManager(config, ctrl.Options{
		Logger:                 logging.IgnoreDebugEvents(logger),
		Metrics:                server.Options{BindAddress: fmt.Sprintf("127.0.0.1:%d", settings.MetricsPort)},
		HealthProbeBindAddress: fmt.Sprintf("127.0.0.1:%d", settings.HealthProbePort),
		BaseContext: func() context.Context {
			return injection.WithOptionsOrDie(log.IntoContext(context.Background(), logger), options.Injectables...)
		},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&coordinationv1.Lease{}: {Field: fields.SelectorFromSet(fields.Set{"metadata.namespace": "kube-node-lease"})},
		}},
	}))
	index(ctx, manager)
	lo.Must0(manager.AddHealthzCheck("healthz", healthz.Ping))
	lo.Must0(manager.AddReadyzCheck("caches", func(r *http.Request) error {
		if !manager.GetCache().WaitForCacheSync(r.Context()) {
			return fmt.Errorf("caches not synced")
		}
		return nil
	}))
	return ctx, &operator.Operator{
		Manager:             manager,
		KubernetesInterface: kubernetes.NewForConfigOrDie(config),
		EventRecorder:       events.NewRecorder(manager.GetEventRecorderFor("karpenter")),
		Clock:               clock.RealClock{},
		InstanceTypeStore:   nodeoverlay.NewInstanceTypeStore(),
	}
}

// index adds the field indices that Karpenter's controllers read; the function that does it there is not exported.
func index(ctx context.Context, manager ctrl.Manager) {
	add := func(object client.Object, field string, value func(client.Object) string) {
		lo.Must0(manager.GetFieldIndexer().IndexField(ctx, object, field, func(o client.Object) []string { return []string{value(o)} }))
	}
	add(&corev1.Pod{}, "spec.nodeName", func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName })
	add(&corev1.Node{}, "spec.providerID", func(o client.Object) string { return o.(*corev1.Node).Spec.ProviderID })
	add(&storagev1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) string { return o.(*storagev1.VolumeAttachment).Spec.NodeName })
	claim := func(o client.Object) *v1.NodeClaim { return o.(*v1.NodeClaim) }
	add(&v1.NodeClaim{}, "status.providerID", func(o client.Object) string { return claim(o).Status.ProviderID })
	add(&v1.NodeClaim{}, "spec.nodeClassRef.group", func(o client.Object) string { return claim(o).Spec.NodeClassRef.Group })
	add(&v1.NodeClaim{}, "spec.nodeClassRef.kind", func(o client.Object) string { return claim(o).Spec.NodeClassRef.Kind })
	add(&v1.NodeClaim{}, "spec.nodeClassRef.name", func(o client.Object) string { return claim(o).Spec.NodeClassRef.Name })
	pool := func(o client.Object) *v1.NodeClassReference { return o.(*v1.NodePool).Spec.Template.Spec.NodeClassRef }
	add(&v1.NodePool{}, "spec.template.spec.nodeClassRef.group", func(o client.Object) string { return pool(o).Group })
	add(&v1.NodePool{}, "spec.template.spec.nodeClassRef.kind", func(o client.Object) string { return pool(o).Kind })
	add(&v1.NodePool{}, "spec.template.spec.nodeClassRef.name", func(o client.Object) string { return pool(o).Name })
}
