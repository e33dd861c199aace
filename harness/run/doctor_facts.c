/* Reads what Linux tells about the machine (/proc, /sys, uname, limits) and tries its clock and
 * timer. Judges nothing. */
#include "harness/run/doctor_internal.h"

#include "harness/core/clock.h"
#include "harness/core/options.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

enum { POLICIES_READ = 64, NAPS = 200, NAP_NS = 100000, CLOCK_READS = 20000 };

/* ---- small files ---- */

static size_t read_some(const char *root, const char *path, char *out, size_t out_bytes) {
    char full[512];
    size_t n = 0;
    out[0] = '\0';
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
        return 0;
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    while (n + 1 < out_bytes) {
        ssize_t k = read(fd, out + n, out_bytes - 1 - n);
        if (k <= 0)
            break;
        n += (size_t)k;
    }
    close(fd);
    out[n] = '\0';
    return n;
}

bool machine_text(const char *root, const char *path, char *out, size_t out_bytes) {
    if (!read_some(root, path, out, out_bytes))
        return false;
    out[strcspn(out, "\n")] = '\0';
    for (size_t n = strlen(out); n && isspace((unsigned char)out[n - 1]); n--)
        out[n - 1] = '\0';
    return out[0] != '\0';
}

static int64_t read_integer(const char *root, const char *path) {
    char text[64];
    int64_t v;
    return machine_text(root, path, text, sizeof text) && !parse_i64(text, &v) ? v : -1;
}

/* "Name:   value" or "name<tab>: value" in a text of lines; "" when absent. */
static void field(const char *text, const char *name, char *out, size_t out_bytes) {
    size_t n = strlen(name);
    out[0] = '\0';
    for (const char *p = text; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
        if (strncmp(p, name, n))
            continue;
        const char *colon = p + n + strspn(p + n, " \t");
        if (*colon != ':')
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(out, out_bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
        return;
    }
}

static int64_t kib_field(const char *text, const char *name) {
    char v[32];
    field(text, name, v, sizeof v);
    return v[0] ? strtoll(v, NULL, 10) * 1024 : -1;
}

/* "0-3,8,10-11" counts 7. */
static int64_t count_list(const char *p) {
    int64_t n = 0;
    while (isdigit((unsigned char)*p)) {
        char *end;
        int64_t a = strtoll(p, &end, 10), b = a;
        if (*end == '-')
            b = strtoll(end + 1, &end, 10);
        n += b - a + 1;
        p = *end == ',' ? end + 1 : end;
    }
    return n;
}

/* ---- processor ---- */

#if defined(__x86_64__) || defined(__i386__)
/* The instruction, not /proc/cpuinfo: that file samples frequencies on some kernels, for
 * milliseconds. */
static void cpu_names(struct machine_facts *f) {
    unsigned a, b, c, d, brand[12];
    if (__get_cpuid(0, &a, &b, &c, &d)) {
        const unsigned v[3] = {b, d, c};
        snprintf(f->cpu_vendor, sizeof f->cpu_vendor, "%.12s", (const char *)v);
    }
    if (__get_cpuid(0x80000000, &a, &b, &c, &d) && a >= 0x80000004) {
        for (unsigned i = 0; i < 3; i++)
            __get_cpuid(0x80000002 + i, &brand[4 * i], &brand[4 * i + 1], &brand[4 * i + 2],
                        &brand[4 * i + 3]);
        const char *p = (const char *)brand;
        size_t n = strnlen(p, sizeof brand);
        while (n && p[n - 1] == ' ')
            n--;
        while (n && *p == ' ')
            p++, n--;
        snprintf(f->cpu_model, sizeof f->cpu_model, "%.*s", (int)n, p);
    }
    if (__get_cpuid(1, &a, &b, &c, &d) && c >> 31) { /* reserved for hypervisors to set */
        static const char *const known[][2] = {
            {"KVMKVMKVM", "KVM"},      {"Microsoft Hv", "Hyper-V"},    {"VMwareVMware", "VMware"},
            {"XenVMMXenVMM", "Xen"},   {"VBoxVBoxVBox", "VirtualBox"}, {"TCGTCGTCGTCG", "QEMU"},
            {"bhyve bhyve ", "bhyve"}, {"ACRNACRNACRN", "ACRN"},
        };
        char name[13];
        __cpuid(0x40000000, a, b, c, d);
        const unsigned v[3] = {b, c, d};
        snprintf(name, sizeof name, "%.12s", (const char *)v);
        snprintf(f->hypervisor, sizeof f->hypervisor, "%s", name[0] ? name : "unknown");
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            if (!strcmp(name, known[i][0]))
                snprintf(f->hypervisor, sizeof f->hypervisor, "%s", known[i][1]);
    }
}
#else
static void cpu_names(struct machine_facts *f) {
    (void)f;
}
#endif

static void read_cpu(const char *root, struct machine_facts *f) {
    char text[4096], path[128];
    cpu_set_t set;
    if (!*root)
        cpu_names(f);
    if (!f->cpu_model[0] && read_some(root, "/proc/cpuinfo", text, sizeof text)) {
        static const char *const model[] = {"model name", "Model", "cpu model", "cpu", "CPU part"};
        for (size_t i = 0; i < sizeof model / sizeof model[0] && !f->cpu_model[0]; i++)
            field(text, model[i], f->cpu_model, sizeof f->cpu_model);
        field(text, "vendor_id", f->cpu_vendor, sizeof f->cpu_vendor);
        char flags[2048];
        field(text, "flags", flags, sizeof flags);
        if (strstr(flags, " hypervisor"))
            snprintf(f->hypervisor, sizeof f->hypervisor, "unknown");
    }
    if (!f->hypervisor[0])
        machine_text(root, "/sys/hypervisor/type", f->hypervisor, sizeof f->hypervisor);
    machine_text(root, "/sys/class/dmi/id/product_name", f->product, sizeof f->product);
    if (machine_text(root, "/sys/devices/system/cpu/online", text, sizeof text))
        f->cpus_online = count_list(text);
    else
        f->cpus_online = sysconf(_SC_NPROCESSORS_ONLN);
    f->cpus_allowed = sched_getaffinity(0, sizeof set, &set) ? -1 : CPU_COUNT(&set);
    f->smt = read_integer(root, "/sys/devices/system/cpu/smt/active");
    machine_text(root, "/sys/devices/system/cpu/isolated", f->isolated, sizeof f->isolated);
    f->boost = read_integer(root, "/sys/devices/system/cpu/cpufreq/boost");
    int64_t no_turbo = read_integer(root, "/sys/devices/system/cpu/intel_pstate/no_turbo");
    if (f->boost < 0 && no_turbo >= 0)
        f->boost = !no_turbo;
    for (int64_t i = 0, seen = 0; i < f->cpus_online && seen < POLICIES_READ; i++) {
        snprintf(path, sizeof path,
                 "/sys/devices/system/cpu/cpufreq/policy%" PRId64 "/scaling_governor", i);
        if (!machine_text(root, path, text, sizeof text)) {
            if (i == 0)
                break; /* not controlled from here */
            continue;
        }
        seen++;
        if (!f->governor[0])
            snprintf(f->governor, sizeof f->governor, "%.31s", text);
        else if (strcmp(f->governor, text))
            snprintf(f->governor, sizeof f->governor, "mixed");
    }
}

/* The tightest quota on the way from this process's control group to the root: version 2, else 1.
 */
static void read_quota(const char *root, struct machine_facts *f) {
    char text[4096], path[512], value[64];
    f->cpu_quota_milli = -1;
    if (!read_some(root, "/proc/self/cgroup", text, sizeof text))
        return;
    for (char *p = text, *line; (line = strsep(&p, "\n"));) {
        char *group = strchr(line, ':'), *controllers = group ? group + 1 : NULL;
        group = controllers ? strchr(controllers, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        bool two = controllers[0] == '\0', one = false;
        for (char *c = controllers, *name; (name = strsep(&c, ","));)
            one |= !strcmp(name, "cpu");
        if (!two && !one)
            continue;
        for (;;) {
            int64_t quota = -1, period = -1;
            snprintf(path, sizeof path, "/sys/fs/cgroup%s%.300s/%s", two ? "" : "/cpu",
                     strcmp(group, "/") ? group : "", two ? "cpu.max" : "cpu.cfs_quota_us");
            if (two && machine_text(root, path, value, sizeof value)) {
                if (sscanf(value, "%" SCNd64 " %" SCNd64, &quota, &period) != 2)
                    quota = -1;
            } else if (!two) {
                quota = read_integer(root, path);
                snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%.300s/cpu.cfs_period_us",
                         strcmp(group, "/") ? group : "");
                period = read_integer(root, path);
            }
            int64_t milli = quota > 0 && period > 0 ? quota * 1000 / period : -1;
            if (milli > 0 && (f->cpu_quota_milli < 0 || milli < f->cpu_quota_milli))
                f->cpu_quota_milli = milli;
            char *slash = strrchr(group, '/');
            if (!slash || !*group || !strcmp(group, "/"))
                break;
            *slash = '\0';
        }
    }
}

/* ---- load, memory, limits ---- */

static void read_load(const char *root, struct machine_facts *f) {
    char text[4096];
    f->load1 = f->pressure_some = f->steal = -1;
    if (machine_text(root, "/proc/loadavg", text, sizeof text))
        f->load1 = strtod(text, NULL);
    char *avg =
        machine_text(root, "/proc/pressure/cpu", text, sizeof text) ? strstr(text, "avg10=") : NULL;
    if (avg)
        f->pressure_some = strtod(avg + 6, NULL);
    if (machine_text(root, "/proc/stat", text, sizeof text) && !strncmp(text, "cpu ", 4)) {
        double v[8] = {0}, sum = 0;
        char *p = text + 4;
        for (int i = 0; i < 8; i++)
            sum += v[i] = strtod(p, &p);
        if (sum > 0)
            f->steal = v[7] / sum;
    }
    if (read_some(root, "/proc/meminfo", text, sizeof text)) {
        f->memory_bytes = kib_field(text, "MemTotal");
        f->memory_available_bytes = kib_field(text, "MemAvailable");
        f->swap_bytes = kib_field(text, "SwapTotal");
        if (f->swap_bytes >= 0)
            f->swap_used_bytes = f->swap_bytes - kib_field(text, "SwapFree");
    }
}

static void read_mains(const char *root, struct machine_facts *f) {
    char path[512], text[64];
    snprintf(path, sizeof path, "%s/sys/class/power_supply", root);
    DIR *d = opendir(path);
    struct dirent *entry;
    while (d && (entry = readdir(d))) {
        snprintf(path, sizeof path, "/sys/class/power_supply/%.200s/type", entry->d_name);
        if (!machine_text(root, path, text, sizeof text) || strcmp(text, "Mains"))
            continue;
        snprintf(path, sizeof path, "/sys/class/power_supply/%.200s/online", entry->d_name);
        int64_t on = read_integer(root, path);
        if (on > f->mains)
            f->mains = on;
    }
    if (d)
        closedir(d);
}

static void read_limits(const char *root, struct machine_facts *f) {
    char text[64];
    struct rlimit r;
    f->files_soft = f->files_hard = f->port_first = f->port_last = -1;
    if (!getrlimit(RLIMIT_NOFILE, &r)) {
        f->files_soft = r.rlim_cur > INT64_MAX ? INT64_MAX : (int64_t)r.rlim_cur;
        f->files_hard = r.rlim_max > INT64_MAX ? INT64_MAX : (int64_t)r.rlim_max;
    }
    if (machine_text(root, "/proc/sys/net/ipv4/ip_local_port_range", text, sizeof text) &&
        sscanf(text, "%" SCNd64 " %" SCNd64, &f->port_first, &f->port_last) != 2)
        f->port_first = f->port_last = -1;
    f->somaxconn = read_integer(root, "/proc/sys/net/core/somaxconn");
}

void machine_read(const char *root, struct machine_facts *f) {
    struct utsname u;
    *f = (struct machine_facts){.memory_bytes = -1,
                                .memory_available_bytes = -1,
                                .swap_bytes = -1,
                                .swap_used_bytes = -1,
                                .mains = -1,
                                .synchronised = -1,
                                .clock_resolution_ns = -1,
                                .clock_read_ns = -1,
                                .timer_slack_ns = -1,
                                .oversleep_p99_ns = -1};
    if (!uname(&u)) {
        snprintf(f->os, sizeof f->os, "%.31s", u.sysname);
        snprintf(f->kernel, sizeof f->kernel, "%.127s", u.release);
        snprintf(f->machine, sizeof f->machine, "%.31s", u.machine);
    }
    read_cpu(root, f);
    read_quota(root, f);
    read_load(root, f);
    read_limits(root, f);
    read_mains(root, f);
    machine_text(root, "/sys/devices/system/clocksource/clocksource0/current_clocksource",
                 f->clocksource, sizeof f->clocksource);
    machine_text(root, "/sys/devices/system/clocksource/clocksource0/available_clocksource",
                 f->clocksources, sizeof f->clocksources);
#ifdef __OPTIMIZE__
    f->optimised = true;
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    f->sanitized = true;
#endif
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    f->sanitized = true;
#endif
#endif
}

/* ---- trying ---- */

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void machine_measure(struct machine_facts *f) {
    static const struct timespec nap = {.tv_nsec = NAP_NS};
    int64_t over[NAPS];
    struct timespec res;
    struct timex tx = {0};
    f->clock_resolution_ns =
        clock_getres(CLOCK_MONOTONIC, &res) ? -1 : (int64_t)res.tv_sec * NS_PER_S + res.tv_nsec;
    f->timer_slack_ns = prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
    int state = adjtimex(&tx); /* modes 0: only asks */
    f->synchronised = state < 0 ? -1 : state != TIME_ERROR && !(tx.status & STA_UNSYNC);
    int64_t t0 = clock_now_ns(), t1 = t0;
    for (int i = 0; i < CLOCK_READS; i++)
        t1 = clock_now_ns();
    f->clock_read_ns = (t1 - t0) / CLOCK_READS;
    for (int i = 0; i < NAPS; i++) {
        t0 = clock_now_ns();
        nanosleep(&nap, NULL);
        over[i] = clock_now_ns() - t0 - NAP_NS;
    }
    qsort(over, NAPS, sizeof over[0], by_value);
    f->nap_ns = NAP_NS;
    f->oversleep_p50_ns = over[NAPS / 2 - 1]; /* nearest rank */
    f->oversleep_p99_ns = over[NAPS * 99 / 100 - 1];
    f->oversleep_max_ns = over[NAPS - 1];
}

/* ---- accelerators ---- */

/* TPU device ids: jax-ml/jax, jax/_src/hardware_utils.py (0x0027 is v2 or v3: they cannot be told
 * apart there). Others are named by their id. */
static const struct {
    const char *vendor_id, *device_id, *vendor, *chip;
} devices[] = {
    {"0x1ae0", "0x0027", "Google", "v3"},  {"0x1ae0", "0x005e", "Google", "v4"},
    {"0x1ae0", "0x0062", "Google", "v5p"}, {"0x1ae0", "0x0063", "Google", "v5e"},
    {"0x1ae0", "0x006f", "Google", "v6e"}, {"0x1ae0", "0x0076", "Google", "7x"},
    {"0x10de", NULL, "NVIDIA", NULL},      {"0x1002", NULL, "AMD", NULL},
};

static int name_order(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool identify(const char *root, const char *slot, struct accelerator *a) {
    char path[512], vendor[16], device[16], class[16];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.200s/vendor", slot);
    if (!machine_text(root, path, vendor, sizeof vendor))
        return false;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.200s/device", slot);
    machine_text(root, path, device, sizeof device);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.200s/class", slot);
    machine_text(root, path, class, sizeof class);
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        if (strcmp(vendor, devices[i].vendor_id))
            continue;
        if (devices[i].device_id ? strcmp(device, devices[i].device_id) != 0
                                 /* 3D controllers and processing accelerators, not displays */
                                 : strncmp(class, "0x0302", 6) && strncmp(class, "0x0380", 6) &&
                                       strncmp(class, "0x1200", 6))
            continue;
        snprintf(a->vendor, sizeof a->vendor, "%s", devices[i].vendor);
        if (devices[i].chip)
            snprintf(a->chip, sizeof a->chip, "%s", devices[i].chip);
        else
            snprintf(a->chip, sizeof a->chip, "pci:%.4s:%.4s", vendor + 2, device + 2);
        a->count = 1;
        return true;
    }
    return false;
}

int machine_accelerators(const char *root, struct accelerator a[ACCELERATORS_MAX]) {
    char path[512];
    struct dirent **slot = NULL;
    int kinds = 0;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root);
    int n = scandir(path, &slot, NULL, name_order);
    for (int i = 0; i < n; i++) {
        struct accelerator one;
        int k = 0;
        if (slot[i]->d_name[0] != '.' && identify(root, slot[i]->d_name, &one)) {
            while (k < kinds && (strcmp(a[k].vendor, one.vendor) || strcmp(a[k].chip, one.chip)))
                k++;
            if (k < kinds)
                a[k].count++;
            else if (kinds < ACCELERATORS_MAX)
                a[kinds++] = one;
        }
        free(slot[i]);
    }
    free(slot);
    return kinds;
}
