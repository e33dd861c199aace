/* Collectives on a torus of chips: bandwidth, hops, fixed cost.
 *
 * A topology is a box of chips; an axis wraps only where the chip's rule says so. A group is the
 * part of the axes over which one collective runs. Bytes are of the whole gathered array (V). Two
 * devices of one chip share its links: between chips everything counts chips, and what the cores of
 * a chip exchange comes on top. Sources: jax-ml/scaling-book sharding.md; the links' rates are in
 * the chip file. */
#ifndef BACKENDS_TPU_SIM_COLLECTIVE_H
#define BACKENDS_TPU_SIM_COLLECTIVE_H

#include "backends/tpu_sim/chip.h"
#include "backends/tpu_sim/kernel.h"

#include <stdbool.h>

enum { TOPOLOGY_AXES_MAX = 4 };

struct topology {
    int axes;
    int64_t length[TOPOLOGY_AXES_MAX];
    bool wrap[TOPOLOGY_AXES_MAX];
    int64_t cores; /* devices of each chip that take part; 0 = 1 */
};

enum collective {
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_ALL_TO_ALL,
    COLLECTIVE_PERMUTE, /* one hop along an axis; bytes = what each chip sends */
};

/* "2x4"; text NULL or "" = the most nearly cubical box for `chips` chips. The product must be
 * `chips`. */
int topology_init(struct topology *t, const struct chip *c, int64_t chips, const char *text,
                  struct err *e) MUST_USE;
void topology_print(const struct topology *t, char *out, size_t out_bytes); /* "2x4" */
int64_t topology_chips(const struct topology *t);

/* Takes n chips out of t, whole axes where possible, a piece of one axis else (which does not
 * wrap); what is left stays in t. Returns false when n does not divide t that way. */
bool topology_cut(struct topology *t, int64_t n, struct topology *group);

struct collective_time {
    double s;
    double wire_s, hops_s, core_s, fixed_s; /* s = max(wire, hops) + core + fixed */
};
void collective_run(const struct chip *c, const struct topology *group, enum collective kind,
                    double bytes, struct collective_time *t);
/* One message over `hops` hops, spread over `links` disjoint minimal paths; without the fixed cost.
 */
double permute_seconds(const struct chip *c, double bytes, int64_t hops, int64_t links);
/* Adds to BOUND_ICI and BOUND_OVERHEAD. */
void collective_add(const struct chip *c, const struct topology *group, enum collective kind,
                    double bytes, double times, struct cost *sum);

#endif
