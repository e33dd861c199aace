/* Which facts of a machine would spoil a measurement: one row a limit, with what it does to a
 * result and what to do about it. Severity "note" is for what a reader of the result should know
 * but nobody must change. */
#include "harness/run/doctor_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 192 };
#define GIB (INT64_C(1) << 30)

/* Each returns whether the row applies, and says what was found. */
typedef bool finding_fn(const struct machine_facts *f, char text[TEXT_BYTES]);

static bool governor(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "frequency governor is '%s'", f->governor);
    return f->governor[0] && strcmp(f->governor, "performance");
}

static bool clocksource(const struct machine_facts *f, char text[TEXT_BYTES]) {
    static const char *const fast[] = {"tsc",
                                       "arch_sys_counter",
                                       "kvm-clock",
                                       "hyperv_clocksource_tsc_page",
                                       "riscv_clocksource",
                                       "timebase",
                                       "tod"};
    snprintf(text, TEXT_BYTES, "clock source is '%s'", f->clocksource);
    for (size_t i = 0; i < sizeof fast / sizeof fast[0]; i++)
        if (!strcmp(f->clocksource, fast[i]))
            return false;
    return f->clocksource[0] != '\0';
}

static bool clock_cost(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "reading the clock takes %" PRId64 " ns", f->clock_read_ns);
    return f->clock_read_ns > 200;
}

static bool sleeping(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "short sleeps end %" PRId64 " us late at p99 (p50 %" PRId64 " us)",
             f->oversleep_p99_ns / 1000, f->oversleep_p50_ns / 1000);
    return f->oversleep_p99_ns > 500000;
}

static bool busy(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "load is %.1f on %" PRId64 " processors", f->load1, f->cpus_online);
    return f->load1 > 0.5 * (double)f->cpus_online;
}

static bool pressure(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "work waited for a processor in %.0f %% of the last 10 s",
             f->pressure_some);
    return f->pressure_some > 10;
}

static bool one_cpu(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "this process may use %" PRId64 " processor", f->cpus_allowed);
    return f->cpus_allowed == 1;
}

static bool quota(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "the control group may use %.2f of %" PRId64 " processors",
             (double)f->cpu_quota_milli / 1000, f->cpus_online);
    return f->cpu_quota_milli >= 0 && f->cpu_quota_milli < 1000 * f->cpus_online;
}

static bool steal(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "the hypervisor took %.1f %% of the processor time since boot",
             100 * f->steal);
    return f->steal > 0.01;
}

static bool files(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "%" PRId64 " files may be open (soft limit %" PRId64 ")",
             f->files_hard, f->files_soft);
    return f->files_hard >= 0 && f->files_hard < 10000;
}

static bool ports(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "%" PRId64 " local ports (%" PRId64 " to %" PRId64 ")",
             f->port_last - f->port_first + 1, f->port_first, f->port_last);
    return f->port_first >= 0 && f->port_last - f->port_first + 1 < 16000;
}

static bool backlog(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "a listening socket queues %" PRId64 " connections", f->somaxconn);
    return f->somaxconn >= 0 && f->somaxconn < 1024;
}

static bool memory(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "%.2f GiB of memory available",
             (double)f->memory_available_bytes / (double)GIB);
    return f->memory_available_bytes >= 0 && f->memory_available_bytes < GIB;
}

static bool swapping(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "%.2f GiB of swap in use", (double)f->swap_used_bytes / (double)GIB);
    return f->swap_used_bytes > GIB / 16;
}

static bool battery(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "the machine runs on battery");
    return f->mains == 0;
}

static bool debug_build(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "this binary was built %s",
             f->sanitized ? "with a sanitizer" : "without optimisation");
    return f->sanitized || !f->optimised;
}

static bool unsynchronised(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "the wall clock is not synchronised");
    return f->synchronised == 0;
}

static bool virtual_machine(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "virtual machine (%s)", f->hypervisor);
    return f->hypervisor[0] != '\0';
}

static bool siblings(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "processors share cores (SMT is on)");
    return f->smt == 1;
}

static bool boosting(const struct machine_facts *f, char text[TEXT_BYTES]) {
    snprintf(text, TEXT_BYTES, "frequency boost is on");
    return f->boost == 1;
}

static const struct check {
    const char *id, *severity;
    finding_fn *find;
    const char *reason, *remedy;
} checks[] = {
    {"debug_build", "warning", debug_build, "the harness's own time would be in the result",
     "build with plain 'make'"},
    {"governor", "warning", governor,
     "an idle core is slow when work comes, so latency depends on how busy the machine was before",
     "cpupower frequency-set -g performance"},
    {"clocksource", "warning", clocksource,
     "each reading of the clock is a system call or a bus access, and is done twice an event",
     "boot with clocksource=tsc where the TSC is stable; look into dmesg for why it was given up"},
    {"clock_cost", "warning", clock_cost,
     "stamping events takes time from the work that is measured",
     "see the clock source; inside a sandbox or emulator measure outside of it"},
    {"late_sleeps", "warning", sleeping,
     "open-loop arrivals are issued that much after their intended time, which counts as latency",
     "stop other work, isolate cores (isolcpus, cpuset), forbid deep idle states (cpupower "
     "idle-set -D 10)"},
    {"load", "warning", busy,
     "other work takes processor time and cache from the run, and differently in each run",
     "stop it, or run when it is over; 'top' names it"},
    {"pressure", "warning", pressure,
     "threads that could run had to wait, which shows as latency that is not the system's",
     "stop other work or give this one its own processors (taskset, cpuset)"},
    {"one_processor", "warning", one_cpu,
     "load generator and system under test take turns on it when they are on one machine",
     "widen the affinity (taskset) or drive the load from another machine"},
    {"cpu_quota", "warning", quota,
     "when the quota of a period is used up all threads stop until the next, for up to 100 ms",
     "raise the container's CPU limit, or set none and pin it to processors of its own"},
    {"steal", "warning", steal,
     "the machine stands still without knowing it, which shows as latency",
     "use a dedicated host or a machine type without shared processors"},
    {"open_files", "warning", files,
     "each request in flight over HTTP/1.1 needs one, so concurrency ends below that number",
     "ulimit -Hn 65536 (limits.conf, LimitNOFILE=)"},
    {"local_ports", "warning", ports,
     "each new connection to one endpoint occupies a port for a minute after its end",
     "sysctl net.ipv4.ip_local_port_range='1024 65535'"},
    {"accept_queue", "warning", backlog,
     "bursts of new connections beyond it wait for a second and try again",
     "sysctl net.core.somaxconn=4096"},
    {"memory", "warning", memory, "the kernel drops caches or kills processes during the run",
     "stop what uses it; 'ps aux --sort -rss' names it"},
    {"swap", "warning", swapping, "pages of the run may be on disk when they are needed",
     "swapoff -a after freeing memory"},
    {"battery", "warning", battery, "the processor is throttled to save power", "plug it in"},
    {"wall_clock", "note", unsynchronised,
     "dates in records may be wrong; durations are not affected",
     "run chrony or systemd-timesyncd"},
    {"virtual_machine", "note", virtual_machine,
     "neighbours may share caches, memory and processors; compare runs of the same hour",
     "for certified numbers use a dedicated or bare-metal host"},
    {"smt", "note", siblings, "two busy threads on one core run at about 60 % of their speed each",
     "pin load generator and server to different cores (taskset), or switch SMT off"},
    {"boost", "note", boosting, "speed depends on temperature and on how many cores are busy",
     "for comparisons between processors write 0 to /sys/devices/system/cpu/cpufreq/boost"},
};

json_t *machine_warnings(const struct machine_facts *f) {
    json_t *all = json_array();
    for (size_t i = 0; all && i < sizeof checks / sizeof checks[0]; i++) {
        const struct check *c = &checks[i];
        char text[TEXT_BYTES];
        if (c->find(f, text))
            json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:s, s:s}", "id", c->id,
                                                 "severity", c->severity, "text", text, "reason",
                                                 c->reason, "remedy", c->remedy));
    }
    return all;
}
