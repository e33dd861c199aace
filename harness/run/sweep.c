/* Sweeps: the product of the axes, a run for each point, the Pareto frontier over throughput per
 * chip and interactivity. Prints nothing. */
#include "harness/run/sweep_internal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ABSENT ((double)NAN) /* a metric that the summary does not have */

/* A metric of a summary: a number by itself, or a statistic of an object. */
static double metric_at(const json_t *metrics, const char *name, const char *stat) {
    const json_t *v = json_object_get(metrics, name);
    if (json_is_object(v))
        v = json_object_get(v, stat);
    return json_is_number(v) ? json_number_value(v) : ABSENT;
}

static void read_metrics(struct sweep_point *p) {
    const json_t *m = json_object_get(p->summary, "metrics");
    p->output_tokens_per_s = metric_at(m, "output_tokens_per_s", "value");
    p->per_chip = metric_at(m, "output_tokens_per_s_per_chip", "value");
    p->per_user = metric_at(m, "tokens_per_s_per_user", "p50");
    p->ttft_p50_ns = metric_at(m, "ttft_ns", "p50");
    p->ttft_p99_ns = metric_at(m, "ttft_ns", "p99");
    p->tpot_p50_ns = metric_at(m, "tpot_ns", "p50");
    p->requests_per_s = metric_at(m, "requests_per_s", "value");
    p->goodput_per_s = metric_at(m, "goodput_requests_per_s", "value");
    p->step_p50_ns = metric_at(m, "step_ns", "p50");
    p->step_tokens_per_s = metric_at(m, "step_tokens_per_s", "value");
    if (isnan(p->per_chip))
        p->per_chip = metric_at(m, "step_tokens_per_s_per_chip", "value");
}

/* Throughput per chip (of the system, when chips are unknown to every point) against interactivity
 * (against steps per second in training). Invalid points are not on the frontier. */
void sweep_coordinates(const struct sweep *s, double *x, double *y) {
    bool chips_known = false;
    for (int i = 0; i < s->npoints; i++)
        chips_known = chips_known || !isnan(s->point[i].per_chip);
    for (int i = 0; i < s->npoints; i++) {
        const struct sweep_point *p = &s->point[i];
        double rate = isnan(p->output_tokens_per_s) ? p->step_tokens_per_s : p->output_tokens_per_s;
        x[i] = !p->valid ? ABSENT : chips_known ? p->per_chip : rate;
        y[i] = !isnan(p->per_user)  ? p->per_user
               : p->step_p50_ns > 0 ? 1e9 / p->step_p50_ns
                                    : ABSENT;
    }
}

int sweep_mark_frontier(struct sweep *s, struct err *e) {
    double *x = calloc((size_t)s->npoints + 1, 2 * sizeof *x);
    bool *on = calloc((size_t)s->npoints + 1, sizeof *on);
    int rc = 0;
    if (!x || !on) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        goto out;
    }
    double *y = x + s->npoints;
    sweep_coordinates(s, x, y);
    pareto_mark(x, y, s->npoints, on);
    for (int i = 0; i < s->npoints; i++)
        s->point[i].frontier = on[i];
out:
    free(on);
    free(x);
    return rc;
}

/* The texts of a point: overrides and backend options of base, then those of the axes. */
struct point_texts {
    const char **overrides, **backend_options;
    struct arena arena;
};

static const char *joined(struct arena *a, const char *key, const char *sep, const char *value) {
    size_t n = strlen(key) + strlen(sep) + strlen(value) + 1;
    char *s = arena_alloc(a, n, 1);
    if (s)
        snprintf(s, n, "%s%s%s", key, sep, value);
    return s;
}

static int point_options(const struct run_options *base, const struct sweep *s,
                         const struct sweep_point *p, struct point_texts *t, struct run_options *o,
                         struct err *e) {
    size_t extra = (size_t)s->naxes;
    t->overrides = arena_alloc(&t->arena, (size_t)base->noverrides + extra, sizeof(char *));
    t->backend_options =
        arena_alloc(&t->arena, (size_t)base->nbackend_options + extra, sizeof(char *));
    if (!t->overrides || !t->backend_options)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    *o = *base;
    if (base->noverrides)
        memcpy(t->overrides, base->overrides, (size_t)base->noverrides * sizeof(char *));
    if (base->nbackend_options)
        memcpy(t->backend_options, base->backend_options,
               (size_t)base->nbackend_options * sizeof(char *));
    for (int i = 0; i < s->naxes; i++) {
        const struct sweep_axis *x = &s->axis[i];
        const char *text = NULL;
        switch (x->target) {
        case SWEEP_PATTERN: {
            const char *pattern = joined(&t->arena, x->key, ":", p->value[i]);
            text = pattern ? joined(&t->arena, "pattern", "=", pattern) : NULL;
            t->overrides[o->noverrides++] = text;
            break;
        }
        case SWEEP_OVERRIDE:
            t->overrides[o->noverrides++] = text = joined(&t->arena, x->key, "=", p->value[i]);
            break;
        case SWEEP_BACKEND:
            t->backend_options[o->nbackend_options++] = text =
                joined(&t->arena, x->key, "=", p->value[i]);
            break;
        }
        if (!text)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    o->overrides = t->overrides;
    o->backend_options = t->backend_options;
    return 0;
}

/* Room for the product of the axes; nothing is run yet. s is released by the caller either way. */
static int sweep_begin(struct sweep *s, const struct sweep_axis *axes, int naxes, struct err *e) {
    assert(naxes >= 1 && naxes <= SWEEP_AXES_MAX);
    *s = (struct sweep){.axis = axes, .naxes = naxes, .deviation = ABSENT, .uncertain = ABSENT};
    int planned = 1;
    for (int i = 0; i < naxes; i++) {
        if (planned > SWEEP_POINTS_MAX / axes[i].n)
            return err_set(e, ASSAY_EUSAGE, "the sweep has more than %d points", SWEEP_POINTS_MAX);
        planned *= axes[i].n;
    }
    s->point = calloc((size_t)planned, sizeof *s->point);
    if (!s->point)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    s->planned = planned;
    return 0;
}

static void choose_values(struct sweep *s, struct sweep_point *p, int index) {
    int rest = index;
    for (int i = s->naxes - 1; i >= 0; i--) {
        p->value[i] = s->axis[i].value[rest % s->axis[i].n];
        rest /= s->axis[i].n;
    }
    sweep_point_begin(s, p);
}

void sweep_point_begin(const struct sweep *s, struct sweep_point *p) {
    size_t used = 0;
    for (int i = 0; i < s->naxes && used < sizeof p->label; i++)
        used += (size_t)snprintf(p->label + used, sizeof p->label - used, "%s%s=%s", i ? " " : "",
                                 s->axis[i].name, p->value[i]);
    p->output_tokens_per_s = p->per_chip = p->per_user = ABSENT;
    p->ttft_p50_ns = p->ttft_p99_ns = p->tpot_p50_ns = p->requests_per_s = p->step_p50_ns = ABSENT;
    p->step_tokens_per_s = p->goodput_per_s = ABSENT;
}

/* NULL: out of memory. */
static json_t *over_json(const struct sweep *s, const struct sweep_point *p) {
    json_t *over = json_object();
    int bad = !over;
    for (int i = 0; i < s->naxes && !bad; i++) {
        /* numbers as numbers: a plot's axis */
        int64_t whole;
        double number;
        json_t *v = !parse_i64(p->value[i], &whole)    ? json_integer(whole)
                    : !parse_f64(p->value[i], &number) ? json_real(number)
                                                       : json_string(p->value[i]);
        bad = json_object_set_new(over, s->axis[i].name, v);
    }
    if (!bad)
        return over;
    json_decref(over);
    return NULL;
}

int sweep_plan(const struct run_options *base, const struct sweep_axis *axes, int naxes,
               json_t **out, struct err *e) {
    struct sweep s;
    struct point_texts texts = {0};
    json_t *root = json_object(), *points = json_array();
    int rc = sweep_begin(&s, axes, naxes, e);
    if (!rc && (json_object_set_new(root, "points", points) || !root))
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    for (int i = 0; i < s.planned && !rc; i++) {
        struct sweep_point *p = &s.point[i];
        struct run_options o;
        json_t *plan = NULL;
        choose_values(&s, p, i);
        rc = point_options(base, &s, p, &texts, &o, e);
        if (!rc && (rc = run_plan(&o, &plan, e)))
            err_wrap(e, "point %s", p->label);
        if (!rc && json_object_set_new(plan, "over", over_json(&s, p)))
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        if (!rc && json_array_append_new(points, plan))
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    arena_release(&texts.arena);
    sweep_release(&s);
    if (rc)
        json_decref(root);
    else
        *out = root;
    return rc;
}

void sweep_point_run(const struct run_options *base, const struct sweep *s, struct sweep_point *p) {
    struct point_texts texts = {0};
    struct run_options o;
    struct run_result r = {0};
    struct err e = {0};
    p->code = point_options(base, s, p, &texts, &o, &e);
    if (!p->code)
        p->code = run_execute(&o, &r, &e);
    if (!p->code || p->code == ASSAY_ENEGATIVE || p->code == ASSAY_EINTERRUPTED) {
        memcpy(p->uuid, r.uuid, sizeof p->uuid);
        p->valid = r.valid && !p->code;
        p->summary = json_incref(r.summary);
        read_metrics(p);
    } else {
        snprintf(p->error, sizeof p->error, "%s", *e.text ? e.text : "failed without a message");
    }
    run_result_release(&r);
    arena_release(&texts.arena);
}

int sweep_execute(const struct run_options *base, const struct sweep_axis *axes, int naxes,
                  sweep_visit_fn *visit, void *ctx, struct sweep *s, struct err *e) {
    int rc = sweep_begin(s, axes, naxes, e);
    if (rc)
        return rc;
    int worst = 0;
    for (int i = 0; i < s->planned && worst != ASSAY_EINTERRUPTED; i++) {
        struct sweep_point *p = &s->point[i];
        choose_values(s, p, i);
        if (visit)
            visit(ctx, s, i, false);
        sweep_point_run(base, s, p);
        s->npoints = i + 1;
        if (err_exit_code(p->code) > err_exit_code(worst))
            worst = p->code;
        if (visit)
            visit(ctx, s, i, true);
    }
    rc = sweep_mark_frontier(s, e);
    return rc ? rc : worst;
}

void sweep_release(struct sweep *s) {
    for (int i = 0; i < s->npoints; i++)
        json_decref(s->point[i].summary);
    free(s->point);
    *s = (struct sweep){0};
}

/* Absent rather than null. */
static int put_number(json_t *o, const char *name, double v) {
    return isnan(v) ? 0 : json_object_set_new(o, name, json_real(v));
}

static json_t *point_to_json(const struct sweep *s, const struct sweep_point *p) {
    json_t *o = json_object();
    int bad = json_object_set_new(o, "over", over_json(s, p));
    bad |= json_object_set_new(o, "exit", json_integer(err_exit_code(p->code)));
    if (*p->error)
        bad |= json_object_set_new(o, "error", json_string(p->error));
    if (*p->uuid) {
        bad |= json_object_set_new(o, "run", json_string(p->uuid));
        bad |= json_object_set_new(o, "valid", json_boolean(p->valid));
    }
    bad |= put_number(o, "output_tokens_per_s", p->output_tokens_per_s);
    bad |= put_number(o, "step_tokens_per_s", p->step_tokens_per_s);
    bad |= put_number(o,
                      isnan(p->step_tokens_per_s) ? "output_tokens_per_s_per_chip"
                                                  : "step_tokens_per_s_per_chip",
                      p->per_chip);
    bad |= put_number(o, "tokens_per_s_per_user", p->per_user);
    bad |= put_number(o, "requests_per_s", p->requests_per_s);
    bad |= put_number(o, "goodput_requests_per_s", p->goodput_per_s);
    bad |= put_number(o, "ttft_p50_ns", p->ttft_p50_ns);
    bad |= put_number(o, "ttft_p99_ns", p->ttft_p99_ns);
    bad |= put_number(o, "tpot_p50_ns", p->tpot_p50_ns);
    bad |= put_number(o, "step_p50_ns", p->step_p50_ns);
    bad |= json_object_set_new(o, "frontier", json_boolean(p->frontier));
    if (p->summary)
        bad |= json_object_set(o, "summary", p->summary);
    if (bad) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *sweep_to_json(const struct sweep *s) {
    json_t *root = json_object(), *points = json_array(), *frontier = json_array();
    int bad = json_object_set_new(root, "points", points);
    bad |= json_object_set_new(root, "frontier", frontier);
    for (int i = 0; i < s->npoints && !bad; i++) {
        bad |= json_array_append_new(points, point_to_json(s, &s->point[i]));
        if (s->point[i].frontier)
            bad |= json_array_append_new(frontier, json_string(s->point[i].uuid));
    }
    bad |= put_number(root, "deviation", s->deviation);
    bad |= put_number(root, "uncertain_share", s->uncertain);
    if (bad) {
        json_decref(root);
        return NULL;
    }
    return root;
}
