// Command client-go runs a program while it holds a Lease, the way a Go engineer writes it with client-go's leaderelection:
// the program is started in OnStartedLeading, its context is cancelled when leadership ends, SIGTERM goes out then, SIGKILL
// after the grace; the Lease is released on cancellation, and the process exits after both. The benchmarks measure it beside
// tenure.
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
