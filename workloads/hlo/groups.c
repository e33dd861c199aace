/* Who takes part in a collective: replica_groups in its three forms, source_target_pairs; and what
 * the shardings say of a module's shapes. */
#include "workloads/hlo/hlo_internal.h"

#include <stdlib.h>

struct cursor {
    const char *p, *end;
};

static void blanks(struct cursor *c) {
    while (c->p < c->end && is(*c->p, CH_SPACE))
        c->p++;
}

static bool take(struct cursor *c, const char *want) {
    size_t n = strlen(want);
    blanks(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, want, n))
        return false;
    c->p += n;
    return true;
}

static bool take_number(struct cursor *c, int64_t *v) {
    blanks(c);
    const char *start = c->p;
    while (c->p < c->end && is(*c->p, CH_DIGIT))
        c->p++;
    return hlo_int((struct str){start, (size_t)(c->p - start)}, v);
}

/* Numbers with commas up to a closing sign. */
static bool take_numbers(struct cursor *c, const char *close, int64_t *v, int max, int *n) {
    *n = 0;
    if (take(c, close))
        return true;
    do {
        if (*n == max || !take_number(c, &v[*n]))
            return false;
        ++*n;
    } while (take(c, ","));
    return take(c, close);
}

static bool product(const int64_t *v, int n, int64_t *out) {
    *out = 1;
    for (int i = 0; i < n; i++)
        if (v[i] < 1 || __builtin_mul_overflow(*out, v[i], out))
            return false;
    return true;
}

/* dims] [T(perm)] of an iota, after "<=["; the permutation is the identity where none is written.
 */
static bool take_reshape(struct cursor *c, int64_t *dims, int *perm, int *n) {
    if (!take_numbers(c, "]", dims, HLO_RANK_MAX, n) || !*n)
        return false;
    uint64_t seen = 0;
    for (int i = 0; i < *n; i++)
        perm[i] = i;
    if (!take(c, "T("))
        return true;
    int64_t order[HLO_RANK_MAX];
    int k;
    if (!take_numbers(c, ")", order, HLO_RANK_MAX, &k) || k != *n)
        return false;
    for (int i = 0; i < k; i++) {
        if (order[i] >= k || (seen >> order[i] & 1))
            return false;
        seen |= UINT64_C(1) << order[i];
        perm[i] = (int)order[i];
    }
    return true;
}

/* {{0,1},{2,3}} or {} */
static bool list_form(struct cursor *c, struct hlo_groups *g) {
    g->form = HLO_GROUPS_LIST;
    if (!take(c, "{"))
        return false;
    if (take(c, "}"))
        return true;
    do {
        int64_t size = 0, id;
        if (!take(c, "{"))
            return false;
        if (!take(c, "}")) {
            do {
                if (!take_number(c, &id))
                    return false;
                size++;
            } while (take(c, ","));
            if (!take(c, "}"))
                return false;
        }
        if (!g->groups++)
            g->size = size;
        if (size > g->max_size)
            g->max_size = size;
    } while (take(c, ","));
    return take(c, "}");
}

/* [G,S]<=[d0,d1]T(1,0) */
static bool iota_form(struct cursor *c, struct hlo_groups *g, const char **why) {
    int64_t shape[2], all, parts;
    int n;
    g->form = HLO_GROUPS_IOTA;
    if (!take(c, "[") || !take_numbers(c, "]", shape, 2, &n) || n != 2 || !take(c, "<=") ||
        !take(c, "[") || !take_reshape(c, g->dims, g->perm, &g->ndims))
        return false;
    if (!product(shape, 2, &parts) || !product(g->dims, g->ndims, &all) || parts != all) {
        *why = "expected as many devices in the groups as in the iota they are cut from";
        return false;
    }
    g->groups = shape[0];
    g->size = g->max_size = shape[1];
    return true;
}

/* ---- mesh axes ---- */
enum { AXES_MAX = 16, CUTS_MAX = 2 * HLO_RANK_MAX };
struct axis {
    struct str name;
    int64_t size;
};
struct reference {
    int axis;
    int64_t pre, size; /* the part of the axis: after pre, of that size */
};

static bool take_name(struct cursor *c, struct str *name) {
    blanks(c);
    if (c->p >= c->end || (*c->p != '\'' && *c->p != '"'))
        return false;
    char quote = *c->p++;
    const char *start = c->p;
    while (c->p < c->end && *c->p != quote)
        c->p++;
    *name = (struct str){start, (size_t)(c->p - start)};
    return c->p++ < c->end;
}

static bool take_mesh(struct cursor *c, struct axis *axes, int *n) {
    *n = 0;
    if (!take(c, "["))
        return false;
    if (take(c, "]"))
        return true;
    do {
        if (*n == AXES_MAX || !take_name(c, &axes[*n].name) || !take(c, "=") ||
            !take_number(c, &axes[*n].size) || axes[*n].size < 1)
            return false;
        ++*n;
    } while (take(c, ","));
    return take(c, "]");
}

/* 'x' or 'x':(pre)size */
static bool take_reference(struct cursor *c, const struct axis *axes, int naxes,
                           struct reference *r) {
    struct str name;
    if (!take_name(c, &name))
        return false;
    for (r->axis = 0; r->axis < naxes; r->axis++)
        if (axes[r->axis].name.n == name.n && !memcmp(axes[r->axis].name.p, name.p, name.n))
            break;
    if (r->axis == naxes)
        return false;
    r->pre = 1;
    r->size = axes[r->axis].size;
    if (!take(c, ":"))
        return true;
    int64_t upto;
    return take(c, "(") && take_number(c, &r->pre) && take(c, ")") && take_number(c, &r->size) &&
           r->pre > 0 && r->size > 0 && !__builtin_mul_overflow(r->pre, r->size, &upto) &&
           axes[r->axis].size % upto == 0;
}

/* Cuts each axis where a reference begins or ends, then the groups are an iota over the pieces:
 * the pieces that no reference names count groups, the named ones members. */
static bool cut_axes(const struct axis *axes, int naxes, const struct reference *refs, int nrefs,
                     struct hlo_groups *g) {
    int member_of[HLO_RANK_MAX]; /* piece: its reference, -1 */
    g->ndims = 0;
    for (int a = 0; a < naxes; a++) {
        int64_t done = 1; /* product of the pieces cut off this axis so far */
        while (done < axes[a].size || (done == 1 && axes[a].size == 1)) {
            int64_t next = axes[a].size;
            int owner = -1;
            for (int r = 0; r < nrefs; r++) {
                if (refs[r].axis != a)
                    continue;
                if (refs[r].pre == done && owner < 0) {
                    owner = r;
                    next = done * refs[r].size;
                } else if (refs[r].pre > done && refs[r].pre < next && owner < 0) {
                    next = refs[r].pre;
                }
            }
            if (g->ndims == HLO_RANK_MAX || next % done)
                return false;
            member_of[g->ndims] = owner;
            g->dims[g->ndims++] = next / done;
            if (next == done && axes[a].size != 1)
                return false;
            done = next;
            if (axes[a].size == 1)
                break;
        }
    }
    int n = 0;
    g->groups = g->size = 1;
    for (int d = 0; d < g->ndims; d++)
        if (member_of[d] < 0) {
            g->perm[n++] = d;
            if (__builtin_mul_overflow(g->groups, g->dims[d], &g->groups))
                return false;
        }
    for (int r = 0; r < nrefs; r++) {
        bool found = false;
        for (int d = 0; d < g->ndims; d++)
            if (member_of[d] == r) {
                found = true;
                g->perm[n++] = d;
                if (__builtin_mul_overflow(g->size, g->dims[d], &g->size))
                    return false;
            }
        if (!found)
            return false; /* two references to one part of an axis */
    }
    g->max_size = g->size;
    int64_t all;
    return !__builtin_mul_overflow(g->groups, g->size, &all);
}

/* mesh['x'=2,'y'=4] {'y'}; between the two a ", device_ids=(…)" */
static bool mesh_form(struct cursor *c, struct hlo_groups *g) {
    struct axis axes[AXES_MAX];
    struct reference refs[AXES_MAX];
    int naxes, nrefs = 0;
    g->form = HLO_GROUPS_MESH;
    if (!take_mesh(c, axes, &naxes))
        return false;
    if (take(c, ",")) {
        if (!take(c, "device_ids=("))
            return false;
        const char *start = c->p;
        for (int depth = 1; c->p < c->end && depth; c->p++)
            depth += (*c->p == '(') - (*c->p == ')');
        g->device_ids = (struct str){start, (size_t)(c->p - start) - 1};
        take(c, ",");
    }
    if (!take(c, "{"))
        return false;
    if (!take(c, "}")) {
        do {
            if (nrefs == AXES_MAX || !take_reference(c, axes, naxes, &refs[nrefs]))
                return false;
            nrefs++;
        } while (take(c, ","));
        if (!take(c, "}"))
            return false;
    }
    return cut_axes(axes, naxes, refs, nrefs, g);
}

/* Every device is one group: mesh without axes has one member a group. */
int hlo_groups(const struct hlo_module *m, const struct hlo_computation *c,
               const struct hlo_instr *i, struct hlo_groups *g, struct err *e) {
    *g = (struct hlo_groups){.form = HLO_GROUPS_ABSENT};
    if (!hlo_attr(m, c, i, HLO_KEY_REPLICA_GROUPS, &g->text))
        return 0;
    struct cursor cur = {g->text.p, g->text.p + g->text.n};
    const char *why = "expected replica_groups as {{0,1},{2,3}}, [G,S]<=[dims]T(order) or "
                      "mesh['axis'=n] {'axis'}";
    bool ok = g->text.n && *g->text.p == '{'   ? list_form(&cur, g)
              : g->text.n && *g->text.p == '[' ? iota_form(&cur, g, &why)
              : take(&cur, "mesh")             ? mesh_form(&cur, g)
                                               : false;
    blanks(&cur);
    if (ok && cur.p == cur.end)
        return 0;
    int n = g->text.n > 80 ? 80 : (int)g->text.n;
    return err_set(e, ASSAY_EINPUT, "%s, found %.*s", why, n, g->text.p);
}

/* The k-th id of the transposed iota. */
static int64_t iota_id(int ndims, const int64_t *dims, const int *perm, int64_t k) {
    int64_t at[HLO_RANK_MAX], id = 0;
    for (int i = ndims - 1; i >= 0; i--) {
        at[perm[i]] = k % dims[perm[i]];
        k /= dims[perm[i]];
    }
    for (int i = 0; i < ndims; i++)
        id = id * dims[i] + at[i];
    return id;
}

/* The n-th of "0,2,1,3", or of "[4,16]T(1,0)"; -1 when out of range. */
static int64_t device_id(struct str ids, int64_t n) {
    struct cursor c = {ids.p, ids.p + ids.n};
    int64_t dims[HLO_RANK_MAX], v = -1, all;
    int perm[HLO_RANK_MAX], k;
    if (take(&c, "["))
        return take_reshape(&c, dims, perm, &k) && product(dims, k, &all) && n < all
                   ? iota_id(k, dims, perm, n)
                   : -1;
    for (int64_t i = 0; i <= n; i++)
        if (!take_number(&c, &v) || (i < n && !take(&c, ",")))
            return -1;
    return v;
}

int64_t hlo_groups_ids(const struct hlo_groups *g, int64_t *ids, size_t max) {
    int64_t n = 0, v;
    if (g->form == HLO_GROUPS_LIST) {
        struct cursor c = {g->text.p, g->text.p + g->text.n};
        for (; c.p < c.end; c.p++)
            if (is(*c.p, CH_DIGIT)) {
                if (!take_number(&c, &v))
                    return -1;
                if ((size_t)n < max)
                    ids[n] = v;
                n++;
                c.p--;
            }
        return n;
    }
    if (g->form == HLO_GROUPS_ABSENT)
        return -1;
    int64_t all = g->groups * g->size;
    for (; n < all && (size_t)n < max; n++) {
        ids[n] = iota_id(g->ndims, g->dims, g->perm, n);
        if (g->device_ids.n && (ids[n] = device_id(g->device_ids, ids[n])) < 0)
            return -1;
    }
    return all;
}

int64_t hlo_pairs(struct str s, int64_t (*pairs)[2], size_t max) {
    struct cursor c = {s.p, s.p + s.n};
    int64_t n = 0, a, b;
    if (!take(&c, "{"))
        return -1;
    if (!take(&c, "}")) {
        do {
            if (!take(&c, "{") || !take_number(&c, &a) || !take(&c, ",") || !take_number(&c, &b) ||
                !take(&c, "}"))
                return -1;
            if ((size_t)n < max) {
                pairs[n][0] = a;
                pairs[n][1] = b;
            }
            n++;
        } while (take(&c, ","));
        if (!take(&c, "}"))
            return -1;
    }
    blanks(&c);
    return c.p == c.end ? n : -1;
}

static bool is_true(struct str s) {
    return s.n == 4 && !memcmp(s.p, "true", 4);
}

int64_t hlo_participants(const struct hlo_module *m, const struct hlo_computation *c,
                         const struct hlo_instr *i) {
    struct str s;
    bool channel = hlo_attr(m, c, i, HLO_KEY_CHANNEL_ID, NULL);
    bool global = hlo_attr(m, c, i, HLO_KEY_USE_GLOBAL_DEVICE_IDS, &s) && is_true(s);
    enum hlo_opcode op = hlo_instr_wrapped(m, c, i);
    bool by_partition = op == HLO_ALL_TO_ALL || op == HLO_COLLECTIVE_PERMUTE ||
                        op == HLO_COLLECTIVE_BROADCAST || op == HLO_RAGGED_ALL_TO_ALL;
    int64_t all;
    if (!channel)
        return m->replicas;
    if (by_partition && !global)
        return m->partitions;
    return __builtin_mul_overflow(m->replicas, m->partitions, &all) ? INT64_MAX : all;
}

/* ---- shardings ---- */

/* Does it part some dimension of some array over devices that are not manual?
 * {devices=[2,1,4]<=[8] last_tile_dim_replicate}, {mesh['x'=2], [{'x'}, {}]}, tuples of them. */
static bool is_tiled(struct str s) {
    static const char list[] = "devices=[", mesh[] = "mesh[";
    const char *end = s.p + s.n;
    for (const char *p = s.p; p < end; p++) {
        size_t left = (size_t)(end - p);
        if (left > sizeof list && !memcmp(p, list, sizeof list - 1)) {
            struct cursor c = {p + sizeof list - 1, end};
            int64_t tiles[HLO_RANK_MAX];
            int n;
            if (!take_numbers(&c, "]", tiles, HLO_RANK_MAX, &n))
                return false;
            const char *close = memchr(c.p, '}', (size_t)(end - c.p));
            size_t rest = (size_t)((close ? close : end) - c.p);
            int subgroups = memmem(c.p, rest, "last_tile_dim_replicate", 23) != NULL;
            const char *kinds = memmem(c.p, rest, "last_tile_dims={", 16);
            if (kinds) { /* a trailing dimension a kind */
                subgroups = 1;
                for (const char *q = kinds; q < c.p + rest; q++)
                    subgroups += *q == ',';
            }
            for (int i = 0; i < n - subgroups; i++)
                if (tiles[i] > 1)
                    return true;
        } else if (left > sizeof mesh && !memcmp(p, mesh, sizeof mesh - 1)) {
            const char *axes = memchr(p, ']', left);
            const char *dims = axes ? memchr(axes, '[', (size_t)(end - axes)) : NULL;
            return dims && memchr(dims, '\'', (size_t)(end - dims));
        }
    }
    return false;
}

enum hlo_scope hlo_scope(const struct hlo_module *m) {
    bool tiled = false, collective = false, many = m->replicas > 1 || m->partitions > 1;
    for (uint32_t k = 0; k < m->n; k++) {
        const struct hlo_computation *c = &m->computations[k];
        for (uint32_t j = 0; j < c->n; j++) {
            const struct hlo_instr *i = &c->instrs[j];
            struct str s;
            if (i->opcode != HLO_PARAMETER && hlo_attr(m, c, i, HLO_KEY_SHARDING, &s))
                tiled |= is_tiled(s);
            collective |= hlo_opcode_class((enum hlo_opcode)i->opcode) == HLO_CLASS_COLLECTIVE;
        }
    }
    return tiled && collective  ? HLO_SCOPE_MIXED
           : tiled              ? HLO_SCOPE_GLOBAL
           : many || collective ? HLO_SCOPE_PER_DEVICE
                                : HLO_SCOPE_SINGLE;
}

const char *hlo_scope_name(enum hlo_scope s) {
    static const char *const names[] = {"single_device", "per_device", "global", "mixed"};
    return names[s];
}
