/* What is in a module, counted: for `assay inspect` and for whoever checks a reader. */
#ifndef WORKLOADS_HLO_FACTS_H
#define WORKLOADS_HLO_FACTS_H

#include "harness/core/arena.h"
#include "workloads/hlo/cost.h"

/* Collectives of one kind; an instruction counts once, "executed" as often as it runs. */
struct hlo_collective_fact {
    enum hlo_opcode op; /* without -start */
    int64_t count, operand_bytes;
    int64_t executed, executed_payload_bytes, executed_sent_bytes; /* per device */
    int64_t max_group;
};

/* Custom calls of one target, or opcodes that the table does not have. */
struct hlo_name_fact {
    struct str name;
    int64_t count, executed;
    int64_t unknown;    /* of executed: without a price */
    const char *source; /* what the price of the last one rests on; NULL: unknown */
};

struct hlo_facts {
    int64_t computations, instructions, entry_instructions, entry_parameters;
    int64_t entry_parameter_bytes, entry_result_bytes; /* without tile padding */
    int64_t alias_entries, with_sharding;
    int64_t opcodes[HLO_OPCODE_COUNT];
    int64_t static_dot_flops, static_convolution_flops; /* each instruction once */
    struct hlo_cost executed, xla;                      /* of the entry */
    struct hlo_collective_fact *collectives;
    struct hlo_name_fact *targets, *unknown_opcodes;
    size_t ncollectives, ntargets, nunknown_opcodes;
    int64_t loops, unknown_trips; /* whiles in the text; those reached whose trips are not known */
    int64_t *trips;               /* of those reached and known, largest first */
    size_t ntrips;
    enum hlo_scope scope;
};

/* Arrays live in the arena, names in the module's text. */
int hlo_facts(const struct hlo_analysis *a, struct arena *arena, struct hlo_facts *out,
              struct err *e) MUST_USE;

/* The instructions that cost most by one property of the model rule, executed: a fusion as one,
 * calls and loops by what they run. Returns how many of max are there, the costliest first. */
struct hlo_top {
    uint32_t computation, instr;
    int64_t executed;     /* times */
    struct hlo_cost cost; /* all times together */
};
int hlo_top(const struct hlo_analysis *a, enum hlo_property by, struct hlo_top *top, size_t max,
            size_t *n, struct err *e) MUST_USE;

#endif
