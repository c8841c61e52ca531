// Prints the fires of a year, as Kubernetes' CronJobs have them: of each schedule in each zone, a line of seconds since 1970.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
)

func main() {
	year, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	start, end := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, fields := range strings.Split(strings.TrimSpace(os.Args[1]), "\n") {
		for _, zone := range strings.Fields(os.Args[2]) {
			schedule, err := cron.ParseStandard("TZ=" + zone + " " + fields)
			if err != nil {
				panic(err)
			}
			var fires []string
			for fire := schedule.Next(start.Add(-1)); fire.Before(end) && !fire.IsZero(); fire = schedule.Next(fire) {
				fires = append(fires, strconv.FormatInt(fire.Unix(), 10))
			}
			fmt.Println(strings.Join(fires, " "))
		}
	}
}
