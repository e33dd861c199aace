/* Kernel times. T = fixed + max(compute, memory) + what of the shorter the loop cannot overlap,
 * where compute is the larger of matrix and vector time. Not here: which kernels a layer has
 * (step.c), links (collective.c). */
#include "backends/tpu_sim/kernel.h"

#include <assert.h>

const char *const bound_names[BOUND_COUNT] = {"mxu", "vpu", "hbm", "ici", "overhead", "host"};

double cost_total(const struct cost *c) {
    double t = 0;
    for (int i = 0; i < BOUND_COUNT; i++)
        t += c->s[i];
    return t;
}

void cost_add(struct cost *to, const struct cost *from, double times) {
    for (int i = 0; i < BOUND_COUNT; i++)
        to->s[i] += from->s[i] * times;
}

void device_init(struct device *d, const struct chip *c) {
    double devices = (double)c->devices;
    *d = (struct device){0};
    d->mxus = (double)c->mxus / devices;
    d->mxu_dim = c->mxu_dim;
    d->row_pad = c->row_pad;
    d->load_rows = ceil_div(c->mxu_dim, c->weight_rows);
    for (int i = 0; i < NUM_COUNT; i++) {
        d->flops_per_s[i] = chip_peak_flops(c, (enum num)i) / devices;
        /* f32 operands run as several bf16 passes only at higher precision settings; default: one.
         */
        d->mxu_hz[i] =
            d->flops_per_s[i] / (2.0 * d->mxus * (double)c->mxu_dim * (double)c->mxu_dim);
    }
    d->vpu_ops_per_s = (double)c->vpu_lanes * c->clock_ghz * 1e9 / devices;
    d->hbm_bytes_per_s = c->hbm_gbps * 1e9 * c->hbm_eff / devices;
    d->attn_hbm_bytes_per_s = c->hbm_gbps * 1e9 * c->attn_hbm_eff / devices;
    d->mxu_eff = c->mxu_eff;
    d->attn_mxu_eff = c->attn_mxu_eff;
    d->grouped_eff = c->grouped_eff;
    d->gather_eff = c->gather_eff;
    d->fill_bytes = c->fill_mb * 1e6;
    d->f16_ops = c->f16_ops;
    d->kernel_s = c->kernel_us * 1e-6;
    d->tile_s = c->tile_us * 1e-6;
    d->attn_seq_s = c->attn_seq_us * 1e-6;
    d->plain_seq_s = c->plain_seq_us * 1e-6;
    d->vmem_bytes = c->vmem_mib * 1048576.0 / devices;
    d->hbm_bytes = c->hbm_gib * 1073741824.0 / devices;
}

int64_t scalesim_cycles(enum dataflow f, int64_t rows, int64_t cols, int64_t m, int64_t n,
                        int64_t k) {
    switch (f) {
    case DATAFLOW_WS:
        return ceil_div(k, rows) * ceil_div(n, cols) * (2 * rows + cols + m - 2) - 1;
    case DATAFLOW_IS:
        return ceil_div(k, rows) * ceil_div(m, cols) * (2 * rows + cols + n - 2) - 1;
    case DATAFLOW_OS:
        return ceil_div(m, rows) * ceil_div(n, cols) * (rows + cols + k - 2) - 1;
    }
    return 0;
}

double mxu_fold_cycles(int64_t dim, double units, int64_t row_pad, int64_t load_rows, double eff,
                       int64_t m, int64_t n, int64_t k) {
    int64_t tiles = ceil_div(k, dim) * ceil_div(n, dim),
            have = (int64_t)units > 0 ? (int64_t)units : 1;
    if (tiles < 1)
        return 0;
    int64_t folds = 1, parts = 1;
    if (tiles >= have)
        folds = ceil_div(tiles, have);
    else
        parts = have / tiles;
    int64_t rows = round_up(ceil_div(round_up(m, row_pad), parts), row_pad);
    double stream = (double)rows / eff, load = (double)load_rows;
    return (double)folds * (stream > load ? stream : load);
}

double mxu_cycles(int64_t dim, double units, int64_t row_pad, int64_t m, int64_t n, int64_t k) {
    return mxu_fold_cycles(dim, units, row_pad, dim, 1, m, n, k) + (double)(2 * dim - 2);
}

static double or2(double bytes) {
    return bytes > 0 ? bytes : 2.0;
}

static void matmul(const struct device *d, const struct kernel *k, struct kernel_time *t) {
    double batch = k->batch > 0 ? (double)k->batch : 1.0;
    double m = (double)k->m, n = (double)k->n, kk = (double)k->k;
    double units = d->mxus, per = batch;
    if (batch >= d->mxus) { /* enough independent products: one a unit */
        units = 1;
        per = batch / d->mxus;
    }
    double cycles =
        mxu_fold_cycles(d->mxu_dim, units, d->row_pad, d->load_rows, d->mxu_eff, k->m, k->n, k->k) *
        per;
    t->flops = 2.0 * m * n * kk * batch;
    t->issued_flops = 2.0 * (double)round_up(k->m, d->row_pad) *
                      (double)round_up(k->n, d->mxu_dim) * (double)round_up(k->k, d->mxu_dim) *
                      batch;
    t->mxu_s = cycles / d->mxu_hz[k->math];
    t->hbm_bytes += batch * (m * kk * or2(k->a_bytes) + m * n * or2(k->out_bytes));
    if (!(k->flags & KERNEL_RESIDENT))
        t->hbm_bytes += batch * kk * n * or2(k->b_bytes);
    if (k->flags & KERNEL_F16)
        t->convert_s = batch * (m * kk + kk * n + m * n) * d->f16_ops / d->vpu_ops_per_s;
}

/* Rows pad per touched expert: to the row tile while an expert has few, to 128 when it has many. */
static void grouped(const struct device *d, const struct kernel *k, struct kernel_time *t) {
    int64_t groups = k->groups > 0 ? k->groups : 1;
    int64_t rows = ceil_div(k->m, groups);
    int64_t tile = rows >= 128 ? 128 : d->row_pad;
    int64_t padded = round_up(rows, tile);
    double n = (double)k->n, kk = (double)k->k, m = (double)k->m;
    double cycles = mxu_fold_cycles(d->mxu_dim, d->mxus, tile, d->load_rows, d->grouped_eff, padded,
                                    k->n, k->k) *
                    (double)groups;
    t->flops = 2.0 * m * n * kk;
    t->issued_flops = 2.0 * (double)padded * (double)groups * (double)round_up(k->n, d->mxu_dim) *
                      (double)round_up(k->k, d->mxu_dim);
    t->mxu_s = cycles / d->mxu_hz[NUM_BF16]; /* published expert blocks gain nothing from fp8 */
    t->hbm_bytes += (double)groups * kk * n * or2(k->b_bytes) + m * kk * or2(k->a_bytes) +
                    m * n * or2(k->out_bytes);
}

/* Every operand tile whose index changed is loaded again; each grid step has a fixed cost. */
static void tiled(const struct device *d, const struct kernel *k, struct kernel_time *t) {
    double gm = (double)ceil_div(k->m, k->tm), gn = (double)ceil_div(k->n, k->tn),
           gk = (double)ceil_div(k->k, k->tk);
    double m = (double)k->m, n = (double)k->n, kk = (double)k->k;
    t->flops = t->issued_flops = 2.0 * m * n * kk;
    double step = mxu_fold_cycles(d->mxu_dim, d->mxus, d->row_pad, d->load_rows, d->mxu_eff, k->tm,
                                  k->tn, k->tk) /
                  d->mxu_hz[k->math];
    t->mxu_s = gm * gn * gk * step;
    double a = gk > 1 ? gn : 1; /* index (i, 0) does not change while j runs: A stays */
    t->hbm_bytes +=
        m * kk * or2(k->a_bytes) * a + kk * n * or2(k->b_bytes) * gm + m * n * or2(k->out_bytes);
    t->fixed_s += gm * gn * gk * d->tile_s;
}

static enum bound busy_bound(const struct kernel_time *t) {
    double vpu = t->vpu_s + t->convert_s, compute = t->mxu_s + t->convert_s;
    if (t->hbm_s >= compute && t->hbm_s >= vpu)
        return BOUND_HBM;
    return t->mxu_s >= vpu ? BOUND_MXU : BOUND_VPU;
}

void kernel_run(const struct device *d, const struct kernel *k, struct kernel_time *t) {
    *t = (struct kernel_time){0};
    t->hbm_bytes = k->read_bytes + k->write_bytes;
    t->vpu_s = k->elements * k->ops / d->vpu_ops_per_s;
    double rate = d->hbm_bytes_per_s;
    switch (k->kind) {
    case KERNEL_MATMUL:
        matmul(d, k, t);
        break;
    case KERNEL_GROUPED:
        grouped(d, k, t);
        break;
    case KERNEL_TILED:
        tiled(d, k, t);
        break;
    case KERNEL_ATTENTION:
        t->flops = t->issued_flops = k->flops;
        t->mxu_s = k->flops / d->flops_per_s[k->math];
        if (k->flags & KERNEL_PLAIN) {
            t->mxu_s /= d->mxu_eff;
            t->fixed_s += k->sequences * d->plain_seq_s;
        } else {
            t->mxu_s /= d->attn_mxu_eff;
            t->fixed_s += k->sequences * d->attn_seq_s;
            rate = d->attn_hbm_bytes_per_s;
        }
        break;
    case KERNEL_VECTOR:
        if (k->flags & KERNEL_F16) /* half arrays: two bytes an element */
            t->convert_s = t->hbm_bytes / 2 * d->f16_ops / d->vpu_ops_per_s;
        break;
    case KERNEL_COPY:
        break;
    case KERNEL_GATHER:
        rate = d->hbm_bytes_per_s * d->gather_eff;
        break;
    }
    t->hbm_s = t->hbm_bytes / rate;
    if (!(k->flags & KERNEL_FUSED))
        t->fixed_s += d->kernel_s;
    double compute = (t->mxu_s > t->vpu_s ? t->mxu_s : t->vpu_s) + t->convert_s;
    double longer = compute > t->hbm_s ? compute : t->hbm_s;
    double shorter = compute > t->hbm_s ? t->hbm_s : compute;
    double fill = d->fill_bytes / rate; /* what the loop cannot overlap: first loads, last stores */
    double busy = longer + (shorter < fill ? shorter : fill);
    t->s = t->fixed_s + busy;
    t->bound = t->fixed_s > busy ? BOUND_OVERHEAD : busy_bound(t);
}

void kernel_add(const struct device *d, const struct kernel *k, double times, struct cost *sum) {
    struct kernel_time t;
    kernel_run(d, k, &t);
    sum->s[BOUND_OVERHEAD] += t.fixed_s * times;
    sum->s[busy_bound(&t)] += (t.s - t.fixed_s) * times;
}
