/* The client's own health: CPU, context switches, steal, clock steps. A figure measured by a client
 * that was starved is the client's, not the system's. */
#include "harness/run/run_internal.h"

#include "harness/core/clock.h"

#include <stdio.h>
#include <sys/resource.h>

/* First line of /proc/stat: user nice system idle iowait irq softirq steal, in ticks. */
static void cpu_ticks(int64_t *steal, int64_t *total) {
    *steal = *total = 0;
    FILE *f = fopen("/proc/stat", "re");
    if (!f)
        return;
    long long v[8] = {0};
    if (fscanf(f, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &v[0], &v[1], &v[2], &v[3], &v[4],
               &v[5], &v[6], &v[7]) == 8) {
        *steal = v[7];
        for (int i = 0; i < 8; i++)
            *total += v[i];
    }
    fclose(f);
}

static void read_now(struct client_health *h) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    h->wall_ns = clock_wall_ns();
    h->mono_ns = clock_now_ns();
    h->cpu_ns = clock_cpu_ns();
    h->voluntary = u.ru_nvcsw;
    h->involuntary = u.ru_nivcsw;
    cpu_ticks(&h->steal_ticks, &h->total_ticks);
}

void client_health_start(struct client_health *h) {
    read_now(h);
}

void client_health_stop(struct client_health *h) {
    struct client_health end;
    read_now(&end);
    h->wall_ns = end.wall_ns - h->wall_ns;
    h->mono_ns = end.mono_ns - h->mono_ns;
    h->cpu_ns = end.cpu_ns - h->cpu_ns;
    h->voluntary = end.voluntary - h->voluntary;
    h->involuntary = end.involuntary - h->involuntary;
    h->steal_ticks = end.steal_ticks - h->steal_ticks;
    h->total_ticks = end.total_ticks - h->total_ticks;
}

bool clock_was_stepped(const struct client_health *h) {
    int64_t d = h->wall_ns - h->mono_ns;
    if (d < 0)
        d = -d;
    return d > 100 * NS_PER_MS + h->mono_ns / 10000;
}

json_t *client_health_json(const struct client_health *h, int64_t threads, uint64_t log_stalls) {
    double wall = h->mono_ns > 0 ? (double)h->mono_ns : 1;
    json_t *j = json_pack("{s:I, s:f, s:I, s:I, s:I}", "threads", (json_int_t)threads, "cpu_share",
                          (double)h->cpu_ns / wall, "voluntary_switches", (json_int_t)h->voluntary,
                          "involuntary_switches", (json_int_t)h->involuntary, "log_stalls",
                          (json_int_t)log_stalls);
    if (j && h->total_ticks > 0)
        json_object_set_new(j, "steal_share",
                            json_real((double)h->steal_ticks / (double)h->total_ticks));
    return j;
}
