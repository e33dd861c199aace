/* The report, the environment of a record and the draft of a system description, as JSON made of
 * the facts (doctor_facts.c) and findings (doctor_checks.c); and the report for people. */
#include "harness/run/doctor.h"

#include "harness/core/version.h"
#include "harness/run/doctor_internal.h"

#include <curl/curl.h>
#include <gnu/libc-version.h>
#include <hwloc.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <openssl/crypto.h>
#include <sodium.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

/* ---- members that may be unknown ---- */

static void put_text(json_t *o, const char *name, const char *v) {
    json_t *text = v[0] ? json_string(v) : NULL;
    if (v[0] && !text)
        text = json_string("?"); /* not UTF-8 */
    if (text)
        json_object_set_new(o, name, text);
}

static void put_int(json_t *o, const char *name, int64_t v) {
    if (v >= 0)
        json_object_set_new(o, name, json_integer(v));
}

static void put_real(json_t *o, const char *name, double v) {
    if (v >= 0)
        json_object_set_new(o, name, json_real(v));
}

static void put_flag(json_t *o, const char *name, int64_t v) {
    if (v >= 0)
        json_object_set_new(o, name, json_boolean(v));
}

/* A new section of a report, borrowed. */
static json_t *section(json_t *report, const char *name) {
    json_t *o = json_object();
    json_object_set_new(report, name, o);
    return o;
}

static json_t *libraries(void) {
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "curl",
                     curl_version_info(CURLVERSION_NOW)->version, "glibc", gnu_get_libc_version(),
                     "hwloc", HWLOC_VERSION, "jansson", jansson_version_str(), "microhttpd",
                     MHD_get_version(), "openssl", OpenSSL_version(OPENSSL_VERSION_STRING),
                     "sodium", sodium_version_string(), "sqlite", sqlite3_libversion());
}

/* ---- the report ---- */

static void put_topology(json_t *report) {
    static const struct {
        const char *name;
        hwloc_obj_type_t type;
    } rows[] = {
        {"packages", HWLOC_OBJ_PACKAGE},  {"numa_nodes", HWLOC_OBJ_NUMANODE},
        {"cores", HWLOC_OBJ_CORE},        {"processors", HWLOC_OBJ_PU},
        {"l3_caches", HWLOC_OBJ_L3CACHE},
    };
    hwloc_topology_t t;
    if (hwloc_topology_init(&t))
        return;
    if (!hwloc_topology_load(t)) {
        json_t *o = section(report, "topology");
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            int n = hwloc_get_nbobjs_by_type(t, rows[i].type);
            if (n > 0)
                put_int(o, rows[i].name, n);
        }
        hwloc_obj_t l3 = hwloc_get_obj_by_type(t, HWLOC_OBJ_L3CACHE, 0);
        if (l3)
            put_int(o, "l3_bytes", (int64_t)l3->attr->cache.size);
        int cores = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE),
            pus = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU);
        if (cores > 0)
            put_int(o, "threads_per_core", pus / cores);
    }
    hwloc_topology_destroy(t);
}

static void put_machine(json_t *report, const struct machine_facts *f) {
    json_t *o = section(report, "kernel");
    put_text(o, "os", f->os);
    put_text(o, "release", f->kernel);
    put_text(o, "machine", f->machine);
    o = section(report, "cpu");
    put_text(o, "model", f->cpu_model);
    put_text(o, "vendor", f->cpu_vendor);
    put_int(o, "online", f->cpus_online);
    put_int(o, "allowed", f->cpus_allowed);
    if (f->cpu_quota_milli >= 0)
        put_real(o, "quota", (double)f->cpu_quota_milli / 1000);
    put_flag(o, "smt", f->smt);
    put_text(o, "governor", f->governor);
    put_flag(o, "boost", f->boost);
    put_text(o, "isolated", f->isolated);
    put_topology(report);
    o = section(report, "clock");
    put_text(o, "source", f->clocksource);
    put_text(o, "available", f->clocksources);
    put_int(o, "resolution_ns", f->clock_resolution_ns);
    put_int(o, "read_ns", f->clock_read_ns);
    put_flag(o, "wall_synchronised", f->synchronised);
    o = section(report, "timer");
    put_int(o, "slack_ns", f->timer_slack_ns);
    put_int(o, "nap_ns", f->nap_ns);
    if (f->oversleep_p99_ns >= 0) {
        put_int(o, "oversleep_p50_ns", f->oversleep_p50_ns);
        put_int(o, "oversleep_p99_ns", f->oversleep_p99_ns);
        put_int(o, "oversleep_max_ns", f->oversleep_max_ns);
    }
    o = section(report, "load");
    put_real(o, "load1", f->load1);
    put_real(o, "pressure_some_percent", f->pressure_some);
    o = section(report, "memory");
    put_int(o, "total_bytes", f->memory_bytes);
    put_int(o, "available_bytes", f->memory_available_bytes);
    put_int(o, "swap_bytes", f->swap_bytes);
    put_int(o, "swap_used_bytes", f->swap_used_bytes);
    o = section(report, "limits");
    put_int(o, "open_files", f->files_soft);
    put_int(o, "open_files_hard", f->files_hard);
    put_int(o, "port_first", f->port_first);
    put_int(o, "port_last", f->port_last);
    put_int(o, "accept_queue", f->somaxconn);
    o = section(report, "virtualization");
    put_text(o, "hypervisor", f->hypervisor);
    put_text(o, "product", f->product);
    put_real(o, "steal_fraction", f->steal);
}

int doctor_report(json_t **out, struct err *e) {
    struct machine_facts f;
    struct accelerator a[ACCELERATORS_MAX];
    json_t *report = *out = json_object(), *list;
    if (!report)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    machine_read("", &f);
    machine_measure(&f);
    put_machine(report, &f);
    json_object_set_new(report, "accelerators", list = json_array());
    int n = machine_accelerators("", a);
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "vendor", a[i].vendor, "chip",
                                              a[i].chip, "count", (json_int_t)a[i].count));
    json_object_set_new(report, "libraries", libraries());
    json_object_set_new(report, "assay",
                        json_pack("{s:s, s:s, s:s, s:b, s:b}", "version", assay_version, "commit",
                                  assay_git_commit, "compiler", __VERSION__, "optimised",
                                  f.optimised, "sanitized", f.sanitized));
    json_object_set_new(report, "warnings", machine_warnings(&f));
    return 0;
}

/* ---- for people ---- */

static void print_scaled(FILE *out, double v, const char *const *units, double step, int n) {
    int i = 0;
    for (; i < n - 1 && v >= step; i++)
        v /= step;
    fprintf(out, v < 10 && i ? "%.2f %s" : v < 100 && i ? "%.1f %s" : "%.0f %s", v, units[i]);
}

static bool ends(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n > k && !strcmp(s + n - k, end);
}

static void print_value(FILE *out, const char *name, const json_t *v) {
    static const char *const time[] = {"ns", "us", "ms", "s"};
    static const char *const size[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double x = json_number_value(v);
    if (json_is_string(v))
        fputs(json_string_value(v), out);
    else if (json_is_boolean(v))
        fputs(json_is_true(v) ? "yes" : "no", out);
    else if (ends(name, "_ns"))
        print_scaled(out, x, time, 1000, 4);
    else if (ends(name, "_bytes"))
        print_scaled(out, x, size, 1024, 5);
    else if (ends(name, "_fraction"))
        fprintf(out, "%.2f %%", 100 * x);
    else if (ends(name, "_percent"))
        fprintf(out, "%.1f %%", x);
    else if (json_is_integer(v))
        fprintf(out, "%" PRId64, (int64_t)json_integer_value(v));
    else
        fprintf(out, "%.2f", x);
}

/* "oversleep_p99_ns" is shown as "oversleep p99": the value has the unit. */
static void print_name(FILE *out, const char *name, int width) {
    static const char *const units[] = {"_ns", "_bytes", "_fraction", "_percent"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (ends(name, units[i]))
            n = strlen(name) - strlen(units[i]);
    for (size_t i = 0; i < n; i++)
        fputc(name[i] == '_' ? ' ' : name[i], out);
    fprintf(out, "%*s", n < (size_t)width ? width - (int)n : 1, "");
}

void doctor_print(const json_t *report, FILE *out) {
    static const char *const titles[] = {"kernel",         "cpu",       "topology", "clock",
                                         "timer",          "client",    "load",     "memory",
                                         "limits",         "virtualization", "libraries", "assay"};
    const char *name;
    json_t *part, *v, *w;
    size_t i;
    for (size_t k = 0; k < sizeof titles / sizeof titles[0]; k++) {
        part = json_object_get(report, titles[k]);
        if (!json_object_size(part))
            continue;
        fprintf(out, "%s\n", titles[k]);
        json_object_foreach(part, name, v) {
            fputs("  ", out);
            print_name(out, name, 20);
            print_value(out, name, v);
            fputc('\n', out);
        }
    }
    part = json_object_get(report, "accelerators");
    fprintf(out, "accelerators\n%s", json_array_size(part) ? "" : "  none on the PCI bus\n");
    json_array_foreach(part, i, v) {
        fprintf(out, "  %" PRId64 " x %s %s\n",
                (int64_t)json_integer_value(json_object_get(v, "count")),
                json_string_value(json_object_get(v, "vendor")),
                json_string_value(json_object_get(v, "chip")));
    }
    part = json_object_get(report, "warnings");
    fprintf(out, "\n%s\n",
            json_array_size(part) ? "limits that would spoil a measurement"
                                  : "nothing found that would spoil a measurement");
    json_array_foreach(part, i, w) {
        fprintf(out, "  %s: %s\n      why: %s\n      do:  %s\n",
                json_string_value(json_object_get(w, "severity")),
                json_string_value(json_object_get(w, "text")),
                json_string_value(json_object_get(w, "reason")),
                json_string_value(json_object_get(w, "remedy")));
    }
}

/* ---- for records ---- */

int doctor_environment_of(const struct machine_facts *f, json_t **out, struct err *e) {
    json_t *o = *out = json_object();
    if (!o)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    put_text(o, "os", f->os);
    put_text(o, "kernel", f->kernel);
    put_text(o, "machine", f->machine);
    put_text(o, "cpuModel", f->cpu_model);
    put_int(o, "cpusOnline", f->cpus_online);
    put_int(o, "cpusAllowed", f->cpus_allowed);
    put_int(o, "cpuQuotaMilli", f->cpu_quota_milli);
    put_flag(o, "smt", f->smt);
    put_text(o, "governor", f->governor);
    put_flag(o, "boost", f->boost);
    put_text(o, "hypervisor", f->hypervisor);
    put_text(o, "clock", "CLOCK_MONOTONIC");
    put_text(o, "clocksource", f->clocksource);
    put_text(o, "compiler", __VERSION__);
    put_flag(o, "optimised", f->optimised && !f->sanitized);
    json_object_set_new(o, "libraries", libraries());
    return 0;
}

int doctor_environment(json_t **out, struct err *e) {
    struct machine_facts f;
    machine_read("", &f);
    return doctor_environment_of(&f, out, e);
}

/* workers: names of a slice's hosts, separated by commas, as the TPU runtime's environment gives
 * them. */
int doctor_system_of(const char *root, const struct machine_facts *f, const char *workers,
                     json_t **out, struct err *e) {
    struct accelerator a[ACCELERATORS_MAX];
    char name[128], chip[128], vendor[32];
    int64_t chips = 1, hosts = 1;
    if (machine_accelerators(root, a) > 0) {
        for (const char *p = !strcmp(a[0].vendor, "Google") && workers ? workers : ""; *p; p++)
            hosts += *p == ',';
        chips = a[0].count * hosts;
        snprintf(chip, sizeof chip, "%s", a[0].chip);
        snprintf(vendor, sizeof vendor, "%s", a[0].vendor);
    } else { /* the processor itself */
        char text[64];
        char path[128];
        int64_t package = 0;
        for (int64_t i = 0; i < f->cpus_online; i++) {
            snprintf(path, sizeof path,
                     "/sys/devices/system/cpu/cpu%" PRId64 "/topology/physical_package_id", i);
            if (machine_text(root, path, text, sizeof text) && atoll(text) > package)
                package = atoll(text);
        }
        chips = package + 1;
        snprintf(chip, sizeof chip, "%s", f->cpu_model[0] ? f->cpu_model : f->machine);
        snprintf(vendor, sizeof vendor, "%s",
                 !strcmp(f->cpu_vendor, "AuthenticAMD")   ? "AMD"
                 : !strcmp(f->cpu_vendor, "GenuineIntel") ? "Intel"
                                                          : f->cpu_vendor);
    }
    snprintf(name, sizeof name, "%.100s-%" PRId64, chip, chips);
    *out = json_pack("{s:s, s:s, s:s, s:I, s:I}", "name", name, "class", "measured", "chip", chip,
                     "chips", (json_int_t)chips, "hosts", (json_int_t)hosts);
    if (!*out)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    put_text(*out, "vendor", vendor);
    return 0;
}

int doctor_system(json_t **out, struct err *e) {
    struct machine_facts f;
    machine_read("", &f);
    return doctor_system_of("", &f, getenv("TPU_WORKER_HOSTNAMES"), out, e);
}
