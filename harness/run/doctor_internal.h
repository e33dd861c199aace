/* The facts that doctor collects, private to it: reading is apart from judging, so that both can be tested
 * on machines that are not there. */
#ifndef HARNESS_RUN_DOCTOR_INTERNAL_H
#define HARNESS_RUN_DOCTOR_INTERNAL_H

#include "harness/core/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Texts are "" and numbers -1 where the machine does not say. */
struct machine_facts {
    char os[32], kernel[128], machine[32];
    char cpu_model[128], cpu_vendor[32], hypervisor[64], product[128];
    int64_t cpus_online, cpus_allowed;
    int64_t cpu_quota_milli; /* thousandths of a processor that the control group may use */
    int64_t smt, boost;      /* 0, 1 */
    char isolated[64], governor[32];
    char clocksource[32], clocksources[128];
    double load1, pressure_some; /* pressure: percent of the last 10 s with work waiting for a CPU */
    int64_t memory_bytes, memory_available_bytes, swap_bytes, swap_used_bytes;
    int64_t files_soft, files_hard, port_first, port_last, somaxconn;
    double steal; /* fraction of all CPU time since boot */
    int64_t mains; /* 0 = on battery */
    int64_t synchronised; /* wall clock: 0, 1 */
    bool optimised, sanitized; /* this binary */

    int64_t clock_resolution_ns, clock_read_ns, timer_slack_ns;
    int64_t nap_ns, oversleep_p50_ns, oversleep_p99_ns, oversleep_max_ns;
};

/* root: "" or a directory that holds proc/ and sys/. Cheap. */
void machine_read(const char *root, struct machine_facts *f);
/* Clock and timer, by trying them. */
void machine_measure(struct machine_facts *f);

enum { ACCELERATORS_MAX = 8 };
struct accelerator {
    char vendor[32], chip[64];
    int64_t count;
};
/* Devices on the PCI bus of this host, by kind; returns how many kinds. */
int machine_accelerators(const char *root, struct accelerator a[ACCELERATORS_MAX]);

/* First line of a small file under root, without the newline; false when there is none. */
bool machine_text(const char *root, const char *path, char *out, size_t out_bytes);

/* What would spoil a measurement: a new array. */
json_t *machine_warnings(const struct machine_facts *f);

int doctor_environment_of(const struct machine_facts *f, json_t **out, struct err *e) MUST_USE;
int doctor_system_of(const char *root, const struct machine_facts *f, const char *workers,
                     json_t **out, struct err *e) MUST_USE;

#endif
