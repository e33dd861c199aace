/* A search as the JSON that `sweep --find --json` prints. */
#include "harness/run/find_internal.h"

#include <jansson.h>
#include <math.h>

static int put(json_t *o, const char *name, double v) {
    return isnan(v) ? 0 : json_object_set_new(o, name, json_real(v));
}

static json_t *figure_json(const struct find_limit *l, const struct find_figure *x) {
    bool share = l->what == FIND_GOODPUT;
    json_t *o = json_pack("{s:s, s:s, s:I, s:f, s:f}", "limit", l->name, "verdict",
                          find_verdict_name(x->verdict), "n", (json_int_t)x->n, "effective_n",
                          x->effective, "within", x->within);
    int bad = !o;
    if (isfinite(x->value))
        bad |= put(o, share ? "value" : "value_ns", x->value);
    if (isfinite(x->lo) && isfinite(x->hi))
        bad |= json_object_set_new(o, share ? "interval" : "interval_ns",
                                   json_pack("[f,f]", x->lo, x->hi));
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *probe_json(const struct find *f, const struct find_probe *p) {
    json_t *o = json_object(), *runs = json_array(), *limits = json_array();
    int bad = put(o, "load", p->load);
    bad |= json_object_set_new(o, "verdict", json_string(find_verdict_name(p->verdict)));
    if (*p->why)
        bad |= json_object_set_new(o, "why", json_string(p->why));
    bad |= json_object_set_new(o, "limiting", json_string(f->options->limit[p->limiting].name));
    bad |= json_object_set_new(o, "requests", json_integer(p->requests));
    bad |= put(o, "requests_per_s", p->requests_per_s);
    bad |= put(o, "goodput_requests_per_s", p->goodput_per_s);
    bad |= put(o, "output_tokens_per_s", p->output_tokens_per_s);
    bad |= json_object_set_new(o, "limits", limits);
    bad |= json_object_set_new(o, "runs", runs);
    for (int i = 0; i < f->options->nlimits && !bad; i++)
        bad |= json_array_append_new(limits, figure_json(&f->options->limit[i], &p->at[i]));
    for (int i = 0; i < p->runs && !bad; i++)
        bad |= json_array_append_new(runs, json_string(p->uuid[i]));
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *limits_json(const struct find_options *o) {
    json_t *a = json_array();
    for (int i = 0; a && i < o->nlimits; i++) {
        const struct find_limit *l = &o->limit[i];
        json_t *x = json_pack("{s:s, s:f}", "limit", l->name, "share", (double)l->share_ppm / 1e6);
        if (x && l->limit_ns)
            json_object_set_new(x, "limit_ns", json_integer(l->limit_ns));
        json_array_append_new(a, x);
    }
    return a;
}

json_t *find_to_json(const struct find *f) {
    json_t *root = json_object(), *probes = json_array();
    int bad = json_object_set_new(root, "load", json_string(pattern_kind_name(f->pattern.kind)));
    bad |= json_object_set_new(root, "class", json_string(f->result_class));
    bad |= json_object_set_new(root, "campaign", json_string(f->campaign));
    bad |= json_object_set_new(root, "limits", limits_json(f->options));
    bad |= json_object_set_new(root, "repeats", json_integer(f->options->repeats));
    bad |= json_object_set_new(root, "found", json_boolean(!isnan(f->highest)));
    bad |= put(root, "highest", f->highest);
    bad |= put(root, "estimate", f->estimate);
    bad |= put(root, "lowest_fail", f->lowest_fail);
    if (f->limited_by >= 0)
        bad |= json_object_set_new(root, "limited_by",
                                   json_string(f->options->limit[f->limited_by].name));
    bad |= json_object_set_new(root, "violations", json_integer(f->violations));
    if (f->violations)
        bad |= json_object_set_new(root, "violation",
                                   json_pack("[f,f]", f->violation[0], f->violation[1]));
    bad |= json_object_set_new(root, "probes", probes);
    for (int i = 0; i < f->nprobes && !bad; i++)
        bad |= json_array_append_new(probes, probe_json(f, &f->probe[i]));
    if (!bad)
        return root;
    json_decref(root);
    return NULL;
}
