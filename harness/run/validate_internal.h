/* Shared by the parts of validate: the row, the list of points, the chips read so far. */
#ifndef HARNESS_RUN_VALIDATE_INTERNAL_H
#define HARNESS_RUN_VALIDATE_INTERNAL_H

#include "backends/tpu_sim/chip.h"
#include "backends/tpu_sim/kernel.h"
#include "harness/core/arena.h"
#include "harness/run/csv.h"
#include "harness/run/validate.h"
#include "workloads/model.h"

#include <stdint.h>

enum { VALIDATE_CHIPS_MAX = 16, VALIDATE_OVERRIDES_MAX = 64 };

struct validate_point {
    const char *id, *kind, *generation, *size_class;
    double want, got;
};

struct validator {
    struct arena arena;
    const struct validate_options *o;
    struct validate_point *point;
    size_t points, points_cap;
    json_t *unmodelled;
    size_t rows;
    struct chip chip[VALIDATE_CHIPS_MAX];
    int chips;
    struct serve_cache *serve; /* simulated runs, so that one run answers all rows of a point */
};

/* A row of the general table. Numbers absent in the file are -1. */
struct validate_row {
    const char *file;
    size_t line;
    const char *id, *group, *chip, *generation, *topology, *model, *workload, *phase, *dtype,
        *quant, *sharding, *metric, *unit, *notes, *evidence, *slices; /* slices: "2", ">=1" */
    double chips, global_batch, per_chip_batch, seq_len, isl, osl, concurrency, bytes, value;
    double m, n, k;
};

/* What a model of a row answers. why: a reason, when it is not modelled. */
struct validate_answer {
    const char *kind, *size_class;
    double got;
    const char *why;
};

/* Each returns 0 with a->why NULL (modelled) or set (not), or an error. */
int validate_kernel_row(struct validator *v, const struct validate_row *r,
                        struct validate_answer *a, struct err *e) MUST_USE;
int validate_serve_row(struct validator *v, const struct validate_row *r, struct validate_answer *a,
                       struct err *e) MUST_USE;
int validate_train_row(struct validator *v, const struct validate_row *r, struct validate_answer *a,
                       struct err *e) MUST_USE;
/* Serving rows that are one step of a known model. */
int validate_step_row(struct validator *v, const struct validate_row *r, const struct model *m,
                      struct validate_answer *a, struct err *e) MUST_USE;
/* The two tables with columns of their own. */
int validate_v4_table(struct validator *v, const struct csv_table *c, const char *file,
                      struct err *e) MUST_USE;
int validate_v6e_table(struct validator *v, const struct csv_table *c, const char *file,
                       struct err *e) MUST_USE;

int validate_add_point(struct validator *v, const char *id, const char *kind,
                       const char *generation, const char *size_class, double want, double got,
                       struct err *e) MUST_USE;
int validate_add_why(struct validator *v, const char *id, const char *why, struct err *e) MUST_USE;
/* A number field; absent = -1. */
int validate_number(const struct csv_table *c, size_t row, int column, const char *file, double *x,
                    struct err *e) MUST_USE;

/* Ours for a table's name of a chip ("TPU7x"); *chip NULL when unknown. */
int validate_chip(struct validator *v, const char *name, const struct chip **chip,
                  struct err *e) MUST_USE;
/* Overrides of that chip, for a backend's options: fills out, returns the count. */
int validate_chip_overrides(const struct validator *v, const char *ours, struct chip_override *out,
                            int max);
const char *validate_chip_name(const char *name); /* NULL when unknown */

/* A model by the name a table uses; false when its shape is not known here. */
bool validate_model(const char *name, struct model *m);

/* "<=128", "<=512", …: one of the classes of a limit list that ends with 0; ">last" beyond. */
const char *validate_class(struct validator *v, double x, const double *limits);

/* The number after `key` in text ("max-num-seqs 256"), -1 when absent. */
double validate_find_number(const char *text, const char *key);
bool validate_has(const char *text, const char *word);

void validate_serve_release(struct validator *v);

#endif
