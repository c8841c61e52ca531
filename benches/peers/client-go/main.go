// Command client-go runs a program while it holds a Lease, as a Go engineer writes it with client-go's leaderelection. The
// benchmarks measure it beside tenure.
//
// It starts the program in OnStartedLeading. When leadership ends, the context is cancelled: the program gets SIGTERM, and
// SIGKILL after the grace, and client-go releases the Lease. The process exits after both.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "path of a kubeconfig")
	namespace := flag.String("namespace", "default", "namespace of the Lease")
	lease := flag.String("lease", "", "name of the Lease")
	identity := flag.String("identity", "", "this replica")
	duration := flag.Duration("lease-duration", 15*time.Second, "LeaseDuration")
	deadline := flag.Duration("renew-deadline", 10*time.Second, "RenewDeadline")
	period := flag.Duration("retry-period", 2*time.Second, "RetryPeriod")
	grace := flag.Duration("grace", 20*time.Second, "from SIGTERM to SIGKILL")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	var workload sync.WaitGroup
	lead := func(ctx context.Context) {
		workload.Add(1)
		defer workload.Done()
		defer stop()
		command := exec.CommandContext(ctx, flag.Arg(0), flag.Args()[1:]...)
		command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
		command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
		command.WaitDelay = *grace
		if err := command.Run(); err != nil && !errors.Is(err, context.Canceled) {
			log.Print(err)
		}
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: *namespace, Name: *lease},
			Client:     kubernetes.NewForConfigOrDie(config).CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: *identity},
		},
		LeaseDuration:   *duration,
		RenewDeadline:   *deadline,
		RetryPeriod:     *period,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lead,
			OnStoppedLeading: func() {},
		},
	})
	workload.Wait()
}
