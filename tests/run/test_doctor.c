/* Doctor: what it reads of machines kept as files (tests/data/doctor), what it finds wrong with
 * them, and that its answers about this machine hold together. */
#include "harness/run/doctor.h"
#include "harness/run/doctor_internal.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

TestSuite(run_doctor, .timeout = 30);

#define LOADED "tests/data/doctor/loaded"
#define QUIET "tests/data/doctor/quiet"

Test(run_doctor, reads_a_machine) {
    struct machine_facts f;
    machine_read(LOADED, &f);
    cr_assert(eq(str, f.cpu_model, "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"));
    cr_assert(eq(str, f.cpu_vendor, "GenuineIntel"));
    cr_assert(eq(str, f.hypervisor, "unknown"));
    cr_assert(eq(str, f.product, "Some Machine"));
    cr_assert(eq(i64, f.cpus_online, 5));
    cr_assert(eq(i64, f.cpu_quota_milli, 1500)); /* the parent's, since the group itself has none */
    cr_assert(eq(i64, f.smt, 1));
    cr_assert(eq(i64, f.boost, 1));
    cr_assert(eq(str, f.isolated, ""));
    cr_assert(eq(str, f.governor, "mixed"));
    cr_assert(eq(str, f.clocksource, "hpet"));
    cr_assert(eq(str, f.clocksources, "hpet acpi_pm"));
    cr_assert(ieee_ulp_eq(dbl, f.load1, 7.25, 1));
    cr_assert(ieee_ulp_eq(dbl, f.pressure_some, 41.5, 1));
    cr_assert(ieee_ulp_eq(dbl, f.steal, 0.1, 1));
    cr_assert(eq(i64, f.memory_bytes, INT64_C(8192000000)));
    cr_assert(eq(i64, f.memory_available_bytes, 512000000));
    cr_assert(eq(i64, f.swap_used_bytes, 1024000000));
    cr_assert(eq(i64, f.port_first, 60000));
    cr_assert(eq(i64, f.port_last, 60999));
    cr_assert(eq(i64, f.somaxconn, 128));
    cr_assert(eq(i64, f.mains, 0));
}

Test(run_doctor, knows_nothing_of_an_empty_machine) {
    struct machine_facts f;
    machine_read("tests/data/doctor/absent", &f);
    cr_assert(eq(str, f.governor, ""));
    cr_assert(eq(i64, f.memory_bytes, -1));
    cr_assert(eq(i64, f.mains, -1));
    cr_assert(eq(i64, f.cpu_quota_milli, -1));
    f.files_hard = f.files_soft = 65536;
    f.cpus_allowed = 2;
    f.optimised = true;
    f.sanitized = false;
    json_t *w = machine_warnings(&f);
    cr_assert(eq(sz, json_array_size(w), 0)); /* what is not known is not blamed */
    json_decref(w);
}

/* What getrlimit, the scheduler, the compiler and the clock would say, by hand. */
static void measured(struct machine_facts *f, bool good) {
    f->files_hard = f->files_soft = good ? 65536 : 1024;
    f->cpus_allowed = good ? 8 : 1;
    f->optimised = good;
    f->sanitized = false;
    f->synchronised = good;
    f->clock_read_ns = good ? 25 : 900;
    f->oversleep_p50_ns = good ? 5000 : 60000;
    f->oversleep_p99_ns = good ? 20000 : 1203000;
}

Test(run_doctor, finds_every_limit_with_reason_and_remedy) {
    static const char *const want[] = {
        "debug_build", "governor",    "clocksource",     "clock_cost", "late_sleeps",
        "load",        "pressure",    "one_processor",   "cpu_quota",  "steal",
        "open_files",  "local_ports", "accept_queue",    "memory",     "swap",
        "battery",     "wall_clock",  "virtual_machine", "smt",        "boost",
    };
    struct machine_facts f;
    machine_read(LOADED, &f);
    measured(&f, false);
    json_t *w = machine_warnings(&f);
    cr_assert(eq(sz, json_array_size(w), sizeof want / sizeof want[0]));
    for (size_t i = 0; i < json_array_size(w); i++) {
        json_t *one = json_array_get(w, i);
        cr_assert(eq(str, (char *)json_string_value(json_object_get(one, "id")), (char *)want[i]));
        cr_assert(gt(sz, json_string_length(json_object_get(one, "reason")), 10));
        cr_assert(gt(sz, json_string_length(json_object_get(one, "remedy")), 5));
        cr_assert(gt(sz, json_string_length(json_object_get(one, "text")), 10));
    }
    cr_assert(eq(str, (char *)json_string_value(json_object_get(json_array_get(w, 8), "text")),
                 "the control group may use 1.50 of 5 processors"));
    json_decref(w);
}

Test(run_doctor, finds_nothing_on_a_quiet_machine) {
    struct machine_facts f;
    machine_read(QUIET, &f);
    measured(&f, true);
    json_t *w = machine_warnings(&f);
    cr_assert(eq(sz, json_array_size(w), 0));
    json_decref(w);
}

Test(run_doctor, drafts_systems) {
    struct machine_facts f;
    struct accelerator a[ACCELERATORS_MAX];
    struct err e;
    json_t *s, *want;
    machine_read(QUIET, &f);
    /* two TPU chips, a network card of the same vendor, one GPU as controller and one as display */
    cr_assert(eq(int, machine_accelerators(QUIET, a), 2));
    cr_assert(eq(str, a[0].chip, "v6e"));
    cr_assert(eq(i64, a[0].count, 2));
    cr_assert(eq(str, a[1].vendor, "NVIDIA"));
    cr_assert(eq(str, a[1].chip, "pci:10de:2330"));
    cr_assert(eq(i64, a[1].count, 1));
    cr_assert(eq(int, doctor_system_of(QUIET, &f, "host-a,host-b,host-c,host-d", &s, &e), 0));
    want = json_pack("{s:s,s:s,s:s,s:s,s:i,s:i}", "name", "v6e-8", "class", "measured", "vendor",
                     "Google", "chip", "v6e", "chips", 8, "hosts", 4);
    cr_assert(json_equal(s, want));
    json_decref(s);
    json_decref(want);
    machine_read(LOADED, &f);
    cr_assert(eq(int, doctor_system_of(LOADED, &f, NULL, &s, &e), 0));
    want = json_pack("{s:s,s:s,s:s,s:s,s:i,s:i}", "name",
                     "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz-2", "class", "measured",
                     "vendor", "Intel", "chip", "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
                     "chips", 2, "hosts", 1);
    cr_assert(json_equal(s, want));
    json_decref(s);
    json_decref(want);
}

/* The shape and what must hold between the parts; how much this machine can read is its own affair. */
Test(run_doctor, tries_the_client) {
    static const char *const of_a_load[] = {"events_per_s", "client_error_fraction", "cpu_share_fraction",
                                            "cpu_per_event_ns", "delay_p50_ns", "delay_p99_ns"};
    struct err e = {0};
    json_t *report = json_object();
    cr_assert(eq(int, doctor_client(report, &e), 0), "%s", e.text);
    const json_t *c = json_object_get(report, "client");
    int64_t streams = json_integer_value(json_object_get(c, "streams")),
            beyond = json_integer_value(json_object_get(c, "beyond_streams"));
    cr_assert(gt(sz, json_string_length(json_object_get(c, "limit")), 5));
    cr_assert(gt(sz, json_string_length(json_object_get(c, "server")), 5));
    cr_assert(gt(i64, json_integer_value(json_object_get(c, "measured_ns")), 0));
    cr_assert(streams || beyond, "nothing was tried");
    for (size_t i = 0; i < sizeof of_a_load / sizeof of_a_load[0]; i++)
        cr_assert(eq(int, json_object_get(c, of_a_load[i]) != NULL, streams != 0), "%s", of_a_load[i]);
    if (streams) {
        int64_t gap = json_integer_value(json_object_get(c, "gap_ns"));
        cr_assert(eq(i64, json_integer_value(json_object_get(c, "events_per_s")), streams * 1000000000 / gap));
        cr_assert(le(dbl, json_real_value(json_object_get(c, "client_error_fraction")), 0.01));
        cr_assert(gt(i64, json_integer_value(json_object_get(c, "cpu_per_event_ns")), 0));
        cr_assert(le(i64, json_integer_value(json_object_get(c, "delay_p50_ns")),
                     json_integer_value(json_object_get(c, "delay_p99_ns"))));
    }
    if (beyond) {
        cr_assert(gt(i64, beyond, streams));
        if (!strcmp(json_string_value(json_object_get(c, "limit")), "the client's error")) {
            cr_assert(gt(dbl, json_real_value(json_object_get(c, "beyond_client_error_fraction")), 0.01));
            cr_assert(gt(sz, json_string_length(json_object_get(c, "beyond_worst")), 3));
        }
    }
    json_decref(report);
}

Test(run_doctor, describes_this_environment_the_same_each_time) {
    struct err e;
    json_t *a, *b;
    cr_assert(eq(int, doctor_environment(&a, &e), 0));
    cr_assert(eq(int, doctor_environment(&b, &e), 0));
    cr_assert(json_equal(a, b));
    static const char *const needed[] = {"os",         "kernel", "machine",  "cpuModel",
                                         "cpusOnline", "clock",  "libraries"};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        cr_assert(ne(ptr, json_object_get(a, needed[i]), NULL), "%s", needed[i]);
    json_decref(a);
    json_decref(b);
}

Test(run_doctor, reports_this_machine) {
    struct err e;
    json_t *r;
    char *text = NULL;
    size_t n = 0;
    cr_assert(eq(int, doctor_report(&r, &e), 0));
    cr_assert(ge(
        i64, json_integer_value(json_object_get(json_object_get(r, "topology"), "processors")), 1));
    cr_assert(
        ge(i64, json_integer_value(json_object_get(json_object_get(r, "clock"), "read_ns")), 0));
    json_t *t = json_object_get(r, "timer");
    int64_t p50 = json_integer_value(json_object_get(t, "oversleep_p50_ns"));
    int64_t p99 = json_integer_value(json_object_get(t, "oversleep_p99_ns"));
    cr_assert(ge(i64, p50, 0)); /* a sleep never ends early */
    cr_assert(ge(i64, p99, p50));
    bool list = json_is_array(json_object_get(r, "warnings"));
    cr_assert(list);
    FILE *out = open_memstream(&text, &n);
    doctor_print(r, out);
    fclose(out);
    cr_assert(ne(ptr, strstr(text, "oversleep p99"), NULL));
    cr_assert(ne(ptr, strstr(text, "spoil a measurement"), NULL));
    free(text);
    json_decref(r);
}
