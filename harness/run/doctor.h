/* What this machine has, and which of its limits would spoil a measurement.
 *
 * doctor_report measures (200 naps, 20,000 clock reads) and loads the topology: some 50 ms; doctor_client
 * takes two seconds. The other two are cheap and only read: doctor_environment goes into every signed record, doctor_system prefills the
 * file of --system. None of them needs privileges or changes anything. */
#ifndef HARNESS_RUN_DOCTOR_H
#define HARNESS_RUN_DOCTOR_H

#include "harness/core/err.h"

#include <jansson.h>
#include <stdio.h>

/* One object: kernel, cpu, topology, clock, timer, load, memory, limits, virtualization, accelerators,
 * libraries, assay, and "warnings": [{"id", "severity": "warning"|"note", "text", "reason", "remedy"}].
 * What is not known here is absent. */
int doctor_report(json_t **out, struct err *e) MUST_USE;

/* Adds "client" to a report: the streams of 50 events/s each and the events/s that one thread here reads
 * within the rule max_client_error (1 %), {"streams", "events_per_s", "client_error_fraction",
 * "cpu_share_fraction", "cpu_per_event_ns", "delay_p50_ns", "delay_p99_ns", "limit", "beyond_streams",
 * "beyond_client_error_fraction", "beyond_worst", "gap_ns", "server", "measured_ns"}; delay is from a
 * server's write over loopback to the client's stamp. Without streams no load tried was within it, without
 * beyond_streams none was beyond. Takes two processors, when there are two, for some two seconds; what
 * else runs on them is in the figures. ASSAY_EENV when there is no loopback. */
int doctor_client(json_t *report, struct err *e) MUST_USE;

/* The report for people. */
void doctor_print(const json_t *report, FILE *out);

/* For the record: kernel, processor, governor, clock source, libraries. Equal on an unchanged machine
 * with an unchanged binary: nothing that varies with load, time or boot. Below 1 ms, without hwloc. */
int doctor_environment(json_t **out, struct err *e) MUST_USE;

/* A first draft of the system description: name, class, vendor, chip, chips, hosts, as far as they can
 * be seen from here; to be corrected by whoever knows the system. */
int doctor_system(json_t **out, struct err *e) MUST_USE;

#endif
