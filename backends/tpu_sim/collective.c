/* Torus arithmetic. Not here: overlap with compute (train.c), who needs which collective (step.c).
 */
#include "backends/tpu_sim/collective.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_wraps(struct topology *t, const struct chip *c) {
    bool all = true;
    for (int i = 0; i < t->axes; i++)
        all = all && t->length[i] % c->ici_wrap == 0;
    for (int i = 0; i < t->axes; i++)
        t->wrap[i] =
            t->length[i] > 2 && t->length[i] % c->ici_wrap == 0 && (all || !c->ici_wrap_all);
}

/* The box with the least sum of lengths; lengths ascend. */
static void most_cubical(struct topology *t, int64_t chips, int axes) {
    t->axes = axes;
    for (int i = 0; i < axes; i++)
        t->length[i] = 1;
    int64_t left = chips;
    for (int i = 0; i < axes - 1; i++) {
        int64_t best = 1; /* largest divisor d of left with d^(remaining axes) <= left */
        for (int64_t d = 1; d <= left; d++) {
            int64_t power = 1;
            for (int j = i; j < axes && power <= left; j++)
                power *= d;
            if (power > left)
                break;
            if (left % d == 0)
                best = d;
        }
        t->length[i] = best;
        left /= best;
    }
    t->length[axes - 1] = left;
}

int topology_init(struct topology *t, const struct chip *c, int64_t chips, const char *text,
                  struct err *e) {
    *t = (struct topology){0};
    if (chips < 1 || chips > INT64_C(1) << 20)
        return err_set(e, ASSAY_EUSAGE, "-o chips: expected 1 to 1048576, found %" PRId64, chips);
    if (!text || !*text) {
        int axes = c->ici_axes < TOPOLOGY_AXES_MAX ? (int)c->ici_axes : TOPOLOGY_AXES_MAX;
        most_cubical(t, chips, axes);
        if (axes == 3 && t->length[0] == 1) { /* a slice of 4 is 2x2x1, not 1x2x2 */
            t->length[0] = t->length[1];
            t->length[1] = t->length[2];
            t->length[2] = 1;
        }
        set_wraps(t, c);
        return 0;
    }
    const char *p = text;
    int64_t product = 1;
    for (;;) {
        char *end;
        long long v = strtoll(p, &end, 10);
        if (end == p || *p < '1' || *p > '9' || v > 1 << 20 || (*end && *end != 'x') ||
            t->axes == (c->ici_axes < TOPOLOGY_AXES_MAX ? (int)c->ici_axes : TOPOLOGY_AXES_MAX))
            return err_set(e, ASSAY_EUSAGE,
                           "-o topology: expected up to %" PRId64
                           " lengths joined by 'x' for chip '%s', found \"%.40s\"",
                           c->ici_axes, c->name, text);
        t->length[t->axes++] = v;
        product *= v;
        if (!*end)
            break;
        if (product > 1 << 20)
            break;
        p = end + 1;
    }
    if (product != chips)
        return err_set(e, ASSAY_EUSAGE,
                       "-o topology: '%.40s' has %" PRId64 " chips, but -o chips is %" PRId64, text,
                       product, chips);
    set_wraps(t, c);
    return 0;
}

void topology_print(const struct topology *t, char *out, size_t out_bytes) {
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < t->axes; i++) {
        int w = snprintf(out + at, out_bytes - at, "%s%" PRId64, i ? "x" : "", t->length[i]);
        if (w < 0 || (size_t)w >= out_bytes - at)
            return;
        at += (size_t)w;
    }
}

int64_t topology_chips(const struct topology *t) {
    int64_t n = 1;
    for (int i = 0; i < t->axes; i++)
        n *= t->length[i];
    return n;
}

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

bool topology_cut(struct topology *t, int64_t n, struct topology *group) {
    *group = (struct topology){.axes = t->axes};
    for (int i = 0; i < t->axes; i++)
        group->length[i] = 1;
    /* whole axes first, the longest that divides; they keep their wrap */
    for (;;) {
        int best = -1;
        for (int i = 0; i < t->axes; i++)
            if (t->length[i] > 1 && group->length[i] == 1 && n % t->length[i] == 0 &&
                (best < 0 || t->length[i] > t->length[best]))
                best = i;
        if (best < 0)
            break;
        group->length[best] = t->length[best];
        group->wrap[best] = t->wrap[best];
        n /= t->length[best];
        t->length[best] = 1;
        t->wrap[best] = false;
    }
    for (int i = 0; i < t->axes && n > 1; i++) {
        int64_t g = gcd(n, t->length[i]);
        if (g <= 1)
            continue;
        group->length[i] *= g;
        t->length[i] /= g;
        t->wrap[i] = false;
        n /= g;
    }
    return n == 1;
}

/* On two or more axes of which a long one does not wrap, the pieces cannot be balanced over all
 * links. Source: jetstream-pytorch's sharded 32768^3 products on a 2x4 of v5e: what stays beside
 * the product is 1.35 (all-gather) to 1.4 times (all-reduce) what two ports give. Fitted on those
 * rows, which do not test it; used for every chip. */
static const double MESH_SHARE = 0.75;

void collective_run(const struct chip *c, const struct topology *group, enum collective kind,
                    double bytes, struct collective_time *t) {
    *t = (struct collective_time){0};
    double n = (double)topology_chips(group), cores = group->cores > 1 ? (double)group->cores : 1;
    if (n * cores <= 1)
        return;
    t->fixed_s = c->collective_us * 1e-6;
    if (cores > 1 && c->core_gbps > 0)
        t->core_s = bytes * (kind == COLLECTIVE_ALL_REDUCE ? 2 : 1) * (cores - 1) / cores /
                    (c->core_gbps * 1e9);
    if (n <= 1) {
        t->s = t->core_s + t->fixed_s;
        return;
    }
    int axes = 0;
    bool lame = false; /* a long axis without its wrap */
    double ports = 0, hops = 0, bisection = 0, link = c->ici_link_gbps * 1e9;
    for (int i = 0; i < group->axes; i++) {
        double len = (double)group->length[i];
        if (len <= 1)
            continue;
        axes++;
        lame = lame || (len > 2 && !group->wrap[i]);
        ports += group->wrap[i] ? 2 : 1;
        hops += group->wrap[i] ? (double)(group->length[i] / 2) : len - 1;
        double cut = n / len * (group->wrap[i] ? 2 : 1); /* links across the middle, one way */
        if (bisection == 0 || cut < bisection)
            bisection = cut;
    }
    if (axes > 1 && lame)
        ports *= MESH_SHARE;
    t->hops_s = hops * c->ici_hop_us * 1e-6;
    switch (kind) {
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_REDUCE_SCATTER:
        t->wire_s = bytes * (n - 1) / n / (link * ports);
        break;
    case COLLECTIVE_ALL_REDUCE:
        t->wire_s = 2 * bytes * (n - 1) / n / (link * ports);
        t->hops_s *= 2;
        break;
    case COLLECTIVE_ALL_TO_ALL: {
        /* each byte crosses the middle with probability 1/2, half of it each way; and on the axes'
         * average distance (len/4 wrapped) it uses the links of every chip */
        double cross = bytes / 4 / (bisection * link);
        double spread = 0;
        for (int i = 0; i < group->axes; i++) {
            double len = (double)group->length[i];
            if (len > 1)
                spread += (group->wrap[i] ? len / 4 : (len * len - 1) / (3 * len));
        }
        double through = bytes * spread / (n * ports * link);
        t->wire_s = cross > through ? cross : through;
        break;
    }
    case COLLECTIVE_PERMUTE:
        t->wire_s = bytes / link;
        t->hops_s = c->ici_hop_us * 1e-6;
        break;
    }
    t->s = (t->wire_s > t->hops_s ? t->wire_s : t->hops_s) + t->core_s + t->fixed_s;
}

void collective_add(const struct chip *c, const struct topology *group, enum collective kind,
                    double bytes, double times, struct cost *sum) {
    struct collective_time t;
    collective_run(c, group, kind, bytes, &t);
    sum->s[BOUND_OVERHEAD] += t.fixed_s * times;
    sum->s[BOUND_ICI] += (t.s - t.fixed_s) * times;
}

double permute_seconds(const struct chip *c, double bytes, int64_t hops, int64_t links) {
    return bytes / ((double)links * c->ici_link_gbps * 1e9) + (double)hops * c->ici_hop_us * 1e-6;
}
