/* From readings of power to energy over the measured window; definitions in telemetry.h. */
#include "harness/measure/telemetry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct point {
    int64_t t_ns;
    double v;
};

struct device {
    const char *name; /* its label's text, as JSON has it */
    size_t name_bytes;
    struct point *power, *utilization; /* by time */
    size_t npower, nutilization;
};

struct work {
    const struct series_log *l;
    struct device *device;
    size_t ndevices;
    int64_t begin_ns, end_ns, gap_ns;
};

/* Integral of a piecewise linear function over [begin, end], ns times its unit; *covered: ns that are
 * known; *gaps: holes between readings, *longest the longest of them. */
static double integrate(const struct work *w, const struct point *p, size_t n, int64_t *covered,
                        int64_t *gaps, int64_t *longest) {
    double sum = 0;
    *covered = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        int64_t a = p[i].t_ns, b = p[i + 1].t_ns;
        int64_t from = a > w->begin_ns ? a : w->begin_ns, to = b < w->end_ns ? b : w->end_ns;
        if (from >= to)
            continue;
        if (b - a > w->gap_ns) {
            ++*gaps;
            *longest = b - a > *longest ? b - a : *longest;
            continue;
        }
        double slope = (p[i + 1].v - p[i].v) / (double)(b - a);
        double at_from = p[i].v + slope * (double)(from - a), at_to = p[i].v + slope * (double)(to - a);
        sum += (at_from + at_to) / 2 * (double)(to - from);
        *covered += to - from;
    }
    if (!n)
        return sum;
    int64_t head = p[0].t_ns - w->begin_ns, tail = w->end_ns - p[n - 1].t_ns;
    int64_t window = w->end_ns - w->begin_ns;
    if (head > 0 && head <= w->gap_ns) {
        head = head < window ? head : window;
        sum += p[0].v * (double)head;
        *covered += head;
    }
    if (tail > 0 && tail <= w->gap_ns) {
        tail = tail < window ? tail : window;
        sum += p[n - 1].v * (double)tail;
        *covered += tail;
    }
    if (*covered > window)
        *covered = window;
    return sum;
}

static int by_time(const void *a, const void *b) {
    int64_t x = ((const struct point *)a)->t_ns, y = ((const struct point *)b)->t_ns;
    return (x > y) - (x < y);
}

static const struct series_scrape *scrape_of(const struct series_log *l, uint32_t source, uint32_t round) {
    size_t lo = 0, hi = l->nscrapes;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct series_scrape *s = &l->scrape[mid];
        if (s->source < source || (s->source == source && s->round < round))
            lo = mid + 1;
        else
            hi = mid;
    }
    const struct series_scrape *s = lo < l->nscrapes ? &l->scrape[lo] : NULL;
    return s && s->source == source && s->round == round ? s : NULL;
}

/* Adds a series' readings to a device's curve. */
static int collect(const struct work *w, const struct series *s, struct point **curve, size_t *n,
                   struct err *e) {
    struct point *p = realloc(*curve, (*n + s->n + 1) * sizeof *p);
    if (!p)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    *curve = p;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct series_sample *x = &w->l->sample[s->first + i];
        const struct series_scrape *t = scrape_of(w->l, s->source, x->round);
        if (t && isfinite(x->value))
            p[(*n)++] = (struct point){t->t_ns, x->value};
    }
    return 0;
}

static struct device *device_of(struct work *w, struct str name) {
    for (size_t i = 0; i < w->ndevices; i++)
        if (str_is(name, w->device[i].name, w->device[i].name_bytes))
            return &w->device[i];
    struct device *d = realloc(w->device, (w->ndevices + 1) * sizeof *d);
    if (!d)
        return NULL;
    w->device = d;
    d[w->ndevices] = (struct device){.name = name.p, .name_bytes = name.n};
    return &d[w->ndevices++];
}

static int gather(struct work *w, bool *any, struct err *e) {
    int rc = 0;
    *any = false;
    for (size_t i = 0; i < w->l->nsources; i++)
        *any = *any || !strcmp(w->l->source[i].kind, "telemetry");
    for (size_t i = 0; !rc && i < w->l->nseries; i++) {
        const struct series *s = &w->l->series[i];
        if (strcmp(w->l->source[s->source].kind, "telemetry"))
            continue;
        struct device *d = device_of(w, series_label(s->labels, "device"));
        if (!d)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        if (!strcmp(s->name, "power_w"))
            rc = collect(w, s, &d->power, &d->npower, e);
        else if (!strcmp(s->name, "utilization"))
            rc = collect(w, s, &d->utilization, &d->nutilization, e);
    }
    for (size_t i = 0; !rc && i < w->ndevices; i++) {
        if (w->device[i].npower)
            qsort(w->device[i].power, w->device[i].npower, sizeof(struct point), by_time);
        if (w->device[i].nutilization)
            qsort(w->device[i].utilization, w->device[i].nutilization, sizeof(struct point), by_time);
    }
    return rc;
}

struct total {
    double energy_j, least_coverage;
    int64_t gaps, longest_ns, silent;
};

static json_t *device_json(const struct work *w, const struct device *d, struct total *t) {
    double window = (double)(w->end_ns - w->begin_ns), most = (double)NAN;
    int64_t covered = 0, gaps = 0, longest = 0, readings = 0, ignored = 0, seen = 0;
    double energy = integrate(w, d->power, d->npower, &covered, &gaps, &longest) / 1e9;
    for (size_t i = 0; i < d->npower; i++)
        if (d->power[i].t_ns >= w->begin_ns && d->power[i].t_ns <= w->end_ns) {
            most = isnan(most) ? d->power[i].v : fmax(most, d->power[i].v);
            readings++;
        }
    double coverage = window > 0 ? (double)covered / window : 0;
    json_t *o = json_pack("{s:s%, s:I, s:f, s:f}", "device", d->name, d->name_bytes, "readings",
                          (json_int_t)readings, "coverage", coverage, "energy_j", energy);
    if (covered)
        json_object_set_new(o, "mean_power_w", json_real(energy * 1e9 / (double)covered));
    if (!isnan(most))
        json_object_set_new(o, "max_power_w", json_real(most));
    double busy = integrate(w, d->utilization, d->nutilization, &seen, &ignored, &ignored);
    if (seen)
        json_object_set_new(o, "mean_utilization", json_real(busy / (double)seen));
    if (gaps) {
        json_object_set_new(o, "gaps", json_integer((json_int_t)gaps));
        json_object_set_new(o, "longest_gap_ns", json_integer((json_int_t)longest));
    }
    t->energy_j += energy;
    t->least_coverage = fmin(t->least_coverage, coverage);
    t->gaps += gaps;
    t->longest_ns = longest > t->longest_ns ? longest : t->longest_ns;
    t->silent += !covered;
    return o;
}

int power_report(struct series_log *l, int64_t begin_ns, int64_t end_ns, int64_t output_tokens,
                 int64_t chips, int64_t gap_ns, json_t **out, struct err *e) {
    enum { COVERED_PERCENT = 99 };
    struct work w = {.l = l, .begin_ns = begin_ns, .end_ns = end_ns, .gap_ns = gap_ns};
    struct total t = {.least_coverage = 1};
    bool any = false;
    *out = NULL;
    int rc = series_log_sort(l, e);
    if (!rc)
        rc = gather(&w, &any, e);
    if (rc || !any)
        goto out;
    json_t *devices = json_array(), *warnings = json_array(), *o = json_object();
    for (size_t i = 0; i < w.ndevices; i++)
        json_array_append_new(devices, device_json(&w, &w.device[i], &t));
    bool covered = w.ndevices && t.least_coverage * 100 >= COVERED_PERCENT;
    bool complete = covered && (!chips || (int64_t)w.ndevices == chips);
    if (chips && (int64_t)w.ndevices != chips)
        json_array_append_new(warnings, json_sprintf("telemetry is of %zu devices, the system has %lld chips",
                                                     w.ndevices, (long long)chips));
    if (t.silent || !w.ndevices)
        json_array_append_new(warnings, json_sprintf("telemetry: %lld of %zu devices gave no power in the window "
                                                     "(time zone? see --telemetry-tz)",
                                                     (long long)t.silent, w.ndevices));
    else if (!covered)
        json_array_append_new(warnings, json_sprintf("telemetry covers %.1f %% of the window at the worst device: "
                                                     "its energy is that of this part",
                                                     100 * t.least_coverage));
    if (t.gaps)
        json_array_append_new(warnings, json_sprintf("telemetry has %lld gaps, the longest of %.1f s",
                                                     (long long)t.gaps, (double)t.longest_ns / 1e9));
    json_object_set_new(o, "energy_j", json_real(t.energy_j));
    if (complete && end_ns > begin_ns)
        json_object_set_new(o, "mean_power_w", json_real(t.energy_j * 1e9 / (double)(end_ns - begin_ns)));
    if (complete && output_tokens > 0)
        json_object_set_new(o, "joules_per_output_token", json_real(t.energy_j / (double)output_tokens));
    json_object_set_new(o, "coverage", json_real(w.ndevices ? t.least_coverage : 0));
    json_object_set_new(o, "gap_limit_ns", json_integer((json_int_t)gap_ns));
    json_object_set_new(o, "devices", devices);
    if (json_array_size(warnings))
        json_object_set(o, "warnings", warnings);
    json_decref(warnings);
    *out = o;
out:
    for (size_t i = 0; i < w.ndevices; i++) {
        free(w.device[i].power);
        free(w.device[i].utilization);
    }
    free(w.device);
    return rc;
}
