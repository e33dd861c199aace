/* What a module costs: flops, transcendentals, bytes, collective traffic; per instruction, per
 * computation and executed. 64-bit integers with checked arithmetic: a sum past 63 bits is an
 * error.
 *
 * Two rules. XLA: what XLA's HloCostAnalysis counts, to compare with `compiled.cost_analysis()`: a
 * while is one iteration, a custom call is -1, all-reduce assumes two replicas, a tuple is a table
 * of 8-byte pointers (openxla/xla `xla/service/hlo_cost_analysis.cc`; that one sums in float32, so
 * compare within 1e-6 of the count). MODEL: what a machine does: whiles times their trips, custom
 * calls by what is known of them, pairs once on their start, collectives by an ideal ring.
 * What nobody knows is 0 and counted: HLO_UNKNOWN_OPS, and hlo_loop.trips = -1; a figure with
 * unknowns is a lower bound. */
#ifndef WORKLOADS_HLO_COST_H
#define WORKLOADS_HLO_COST_H

#include "workloads/hlo/hlo.h"

enum hlo_rule { HLO_RULE_XLA, HLO_RULE_MODEL, HLO_RULES };

enum hlo_property {
    HLO_FLOPS, /* a fused multiply-add is two */
    HLO_TRANSCENDENTALS,
    HLO_BYTES,             /* read and written in main memory */
    HLO_DOT_FLOPS,         /* part of HLO_FLOPS: dot and scaled-dot */
    HLO_CONVOLUTION_FLOPS, /* part of HLO_FLOPS: also the dots that a TPU's compiler rewrote */
    HLO_KERNEL_FLOPS,      /* part of HLO_FLOPS: custom calls */
    HLO_PAYLOAD_BYTES,     /* operands of collectives, one device; MODEL only, as the next two */
    HLO_SENT_BYTES,        /* what an ideal ring sends of them, one device */
    HLO_UNKNOWN_OPS,       /* executions of ops whose cost is not known */
    HLO_PROPERTIES
};
extern const char *const hlo_property_names[HLO_PROPERTIES];

struct hlo_cost {
    int64_t v[HLO_PROPERTIES];
};

/* A while. */
struct hlo_loop {
    uint32_t computation, instr;
    int64_t trips; /* -1: not known, priced as 1 */
    bool told;     /* from known_trip_count; else from the induction variable */
};

/* One custom call, as a kernel's price sees it. */
struct hlo_call {
    const struct hlo_module *m;
    const struct hlo_computation *c;
    const struct hlo_instr *i;
    struct str name;   /* of the result */
    struct str config; /* backend_config as written, or empty */
};

/* What is known of a custom call. Rows are tried in order, the caller's before the built-in ones;
 * price returns false when this call is not one that it can price. flops, transcendentals and bytes
 * of *out are used; bytes are preset with operands plus result. */
struct hlo_kernel {
    const char *target; /* custom_call_target */
    const char *kernel; /* in the result's name or in its op_name; NULL: any */
    const char *source; /* what the figure rests on */
    bool (*price)(const struct hlo_call *call, struct hlo_cost *out);
};
extern const struct hlo_kernel hlo_kernels[]; /* ends with target NULL */
/* The row that prices it, NULL: unknown. more: as of hlo_analyse, may be NULL. */
const struct hlo_kernel *hlo_kernel_of(const struct hlo_kernel *more, const struct hlo_call *call,
                                       struct hlo_cost *out);

struct hlo_analysis {
    const struct hlo_module *m;
    const struct hlo_cost *total[HLO_RULES]; /* a computation each, run once */
    const int64_t *multiplicity; /* how often each runs when the entry runs once; a conditional runs
                                    each branch once. 0: not reached, or priced by its caller */
    const struct hlo_loop *loops;
    uint32_t nloops;
    const struct hlo_kernel *kernels;
};

/* *out is returned, free with hlo_analysis_free; it borrows the module. kernels may be NULL. */
int hlo_analyse(const struct hlo_module *m, const struct hlo_kernel *kernels,
                struct hlo_analysis **out, struct err *e) MUST_USE;
void hlo_analysis_free(struct hlo_analysis *a);

/* One instruction, run once, with what it calls. */
int hlo_cost_of(const struct hlo_analysis *a, uint32_t computation, uint32_t instr,
                enum hlo_rule rule, struct hlo_cost *out, struct err *e) MUST_USE;

/* The collective that an instruction is or starts, per execution and device. */
struct hlo_traffic {
    enum hlo_opcode op; /* without -start */
    struct hlo_groups groups;
    int64_t group_size;    /* the largest group, or all participants; 1 for pairs */
    int64_t pairs;         /* of a permute; -1 for the others */
    int64_t payload_bytes; /* operands */
    int64_t sent_bytes;    /* an ideal ring; of a ragged one the bound */
    int64_t steps;         /* of that ring */
    bool bound;            /* sent_bytes depends on run-time sizes */
};
/* False when it is none. */
bool hlo_traffic(const struct hlo_module *m, const struct hlo_computation *c,
                 const struct hlo_instr *i, struct hlo_traffic *t);

#endif
