/* The series log: readings in, changes kept. */
#include "harness/measure/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pending {
    uint32_t series;
    double value;
};

void series_log_init(struct series_log *l) {
    *l = (struct series_log){0};
    buf_init(&l->key, SERIES_LABELS_MAX_BYTES);
}

void series_log_release(struct series_log *l) {
    free(l->scrape);
    free(l->series);
    free(l->sample);
    free(l->slots);
    free(l->pending);
    buf_release(&l->key);
    arena_release(&l->arena);
    *l = (struct series_log){0};
}

static int grow(void *array, size_t *cap, size_t need, size_t size, struct err *e) {
    void **a = array;
    if (need <= *cap)
        return 0;
    size_t want = *cap ? *cap : 256;
    while (want < need)
        want *= 2;
    void *p = realloc(*a, want * size);
    if (!p)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    *a = p;
    *cap = want;
    return 0;
}

int series_source_add(struct series_log *l, const char *kind, const char *location, uint32_t *id,
                      struct err *e) {
    if (l->nsources == SERIES_SOURCES_MAX)
        return err_set(e, ASSAY_EUSAGE, "more than %d sources of measurements", SERIES_SOURCES_MAX);
    struct series_source s = {arena_strdup(&l->arena, kind), arena_strdup(&l->arena, location)};
    if (!s.kind || !s.location)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    *id = (uint32_t)l->nsources;
    l->source[l->nsources++] = s;
    return 0;
}

/* ---- finding a series ---- */

static uint64_t hash_more(uint64_t h, const char *s) {
    do
        h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    while (*s++);
    return h;
}

static uint64_t hash_of(uint32_t source, const char *name, const char *labels) {
    return hash_more(hash_more(UINT64_C(14695981039346656037) + source, name), labels);
}

static uint32_t *slot_of(uint32_t *slots, size_t n, const struct series *all, uint32_t source,
                         const char *name, const char *labels) {
    size_t i = (size_t)hash_of(source, name, labels) & (n - 1);
    for (; slots[i]; i = (i + 1) & (n - 1)) {
        const struct series *s = &all[slots[i] - 1];
        if (s->source == source && !strcmp(s->name, name) && !strcmp(s->labels, labels))
            break;
    }
    return &slots[i];
}

static int rehash(struct series_log *l, struct err *e) {
    size_t n = l->nslots ? 2 * l->nslots : 1024;
    uint32_t *slots = calloc(n, sizeof *slots);
    if (!slots)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (size_t i = 0; i < l->nseries; i++)
        *slot_of(slots, n, l->series, l->series[i].source, l->series[i].name, l->series[i].labels) =
            (uint32_t)i + 1;
    free(l->slots);
    l->slots = slots;
    l->nslots = n;
    return 0;
}

static int add_series(struct series_log *l, uint32_t source, enum prom_kind kind, const char *name,
                      const char *labels, struct err *e) {
    int rc = grow(&l->series, &l->series_cap, l->nseries + 1, sizeof *l->series, e);
    if (rc)
        return rc;
    struct series s = {.source = source,
                       .kind = kind,
                       .name = arena_strdup(&l->arena, name),
                       .labels = arena_strdup(&l->arena, labels),
                       .last = (double)NAN};
    if (!s.name || !s.labels)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    l->series[l->nseries++] = s;
    return 0;
}

int series_put(struct series_log *l, uint32_t source, const char *name, const char *labels,
               enum prom_kind kind, double value, struct err *e) {
    int rc = 0;
    if (2 * (l->nseries + 1) > l->nslots && (rc = rehash(l, e)))
        return rc;
    uint32_t *slot = slot_of(l->slots, l->nslots, l->series, source, name, labels);
    if (!*slot) {
        if (l->nseries == SERIES_MAX) {
            l->full = true;
            return 0;
        }
        if ((rc = add_series(l, source, kind, name, labels, e)))
            return rc;
        *slot = (uint32_t)l->nseries;
    }
    if ((rc = grow(&l->pending, &l->pending_cap, l->npending + 1, sizeof *l->pending, e)))
        return rc;
    l->pending[l->npending++] = (struct pending){*slot - 1, value};
    return 0;
}

/* ---- labels ---- */

/* Bytes of the UTF-8 sequence at p, 0 when it is none. */
static size_t utf8_length(const unsigned char *p, size_t n) {
    static const struct {
        unsigned char lead, mask, bytes;
        uint32_t min;
    } forms[] = {{0x00, 0x80, 1, 0}, {0xc0, 0xe0, 2, 0x80}, {0xe0, 0xf0, 3, 0x800}, {0xf0, 0xf8, 4, 0x10000}};
    for (size_t i = 0; i < 4; i++) {
        if ((p[0] & forms[i].mask) != forms[i].lead || n < forms[i].bytes)
            continue;
        uint32_t c = p[0] & (unsigned char)~forms[i].mask;
        for (size_t k = 1; k < forms[i].bytes; k++) {
            if ((p[k] & 0xc0) != 0x80)
                return 0;
            c = c << 6 | (p[k] & 0x3fu);
        }
        return c >= forms[i].min && c <= 0x10ffff && (c < 0xd800 || c > 0xdfff) ? forms[i].bytes : 0;
    }
    return 0;
}

void json_text_put(struct buf *b, struct str s) {
    buf_putc(b, '"');
    for (size_t i = 0; i < s.n;) {
        unsigned char c = (unsigned char)s.p[i];
        size_t n = utf8_length((const unsigned char *)s.p + i, s.n - i);
        if (c == '"' || c == '\\')
            buf_printf(b, "\\%c", c);
        else if (c < 0x20)
            buf_printf(b, "\\u%04x", c);
        else if (!n)
            buf_puts(b, "\xef\xbf\xbd");
        else
            buf_put(b, s.p + i, n);
        i += n ? n : 1;
    }
    buf_putc(b, '"');
}

static int by_name(const void *a, const void *b) {
    const struct prom_label *const *x = a, *const *y = b;
    size_t n = (*x)->name.n < (*y)->name.n ? (*x)->name.n : (*y)->name.n;
    int c = memcmp((*x)->name.p, (*y)->name.p, n);
    return c ? c : ((*x)->name.n > (*y)->name.n) - ((*x)->name.n < (*y)->name.n);
}

int series_put_prom(struct series_log *l, uint32_t source, const struct prom_sample *s,
                    struct err *e) {
    const struct prom_label *order[PROM_LABELS_MAX];
    struct buf *b = &l->key;
    for (int i = 0; i < s->nlabels; i++)
        order[i] = &s->labels[i];
    if (s->nlabels > 1)
        qsort(order, (size_t)s->nlabels, sizeof order[0], by_name);
    buf_clear(b);
    buf_put(b, s->name.p, s->name.n);
    buf_putc(b, '\0');
    size_t labels = b->n;
    buf_putc(b, '{');
    for (int i = 0; i < s->nlabels; i++) {
        if (i)
            buf_putc(b, ',');
        json_text_put(b, order[i]->name);
        buf_putc(b, ':');
        json_text_put(b, order[i]->value);
    }
    buf_putc(b, '}');
    int rc = buf_check(b, "a metric's name and labels", e);
    if (rc)
        b->failed = false;
    return rc ? rc : series_put(l, source, b->p, b->p + labels, s->kind, s->value, e);
}

struct str series_label(const char *labels, const char *name) {
    size_t n = strlen(name);
    const char *at = labels;
    while (*at && *++at == '"') { /* behind '{' or ',' */
        const char *key = ++at;
        while (*at && *at != '"')
            at++;
        bool same = (size_t)(at - key) == n && !memcmp(key, name, n);
        if (strncmp(at, "\":\"", 3))
            break;
        const char *value = at += 3;
        while (*at && *at != '"')
            at += *at == '\\' && at[1] ? 2 : 1;
        if (same)
            return (struct str){value, (size_t)(at - value)};
        if (*at)
            at++;
    }
    return (struct str){"", 0};
}

/* ---- rounds ---- */

static int keep(struct series_log *l, uint32_t series, uint32_t round, double value, struct err *e) {
    if (l->nsamples == SERIES_SAMPLES_MAX) {
        l->full = true;
        return 0;
    }
    int rc = grow(&l->sample, &l->sample_cap, l->nsamples + 1, sizeof *l->sample, e);
    if (!rc)
        l->sample[l->nsamples++] = (struct series_sample){series, round, value};
    return rc;
}

int series_commit(struct series_log *l, const struct series_scrape *s, bool every, struct err *e) {
    int rc = grow(&l->scrape, &l->scrape_cap, l->nscrapes + 1, sizeof *l->scrape, e);
    size_t n = l->npending;
    l->npending = 0;
    l->sorted = false;
    if (rc)
        return rc;
    l->scrape[l->nscrapes++] = *s;
    if (!s->ok)
        return 0;
    for (size_t i = 0; !rc && i < n; i++) {
        struct series *x = &l->series[l->pending[i].series];
        double v = l->pending[i].value + 0.0; /* -0 becomes 0: a store does not keep it */
        if (x->seen == s->round + 1) /* twice in one text: the first counts */
            continue;
        x->seen = s->round + 1;
        if (!every && (v == x->last || (isnan(v) && isnan(x->last))))
            continue;
        x->last = v;
        rc = keep(l, l->pending[i].series, s->round, v, e);
    }
    for (size_t i = 0; !rc && !every && i < l->nseries; i++) {
        struct series *x = &l->series[i];
        if (x->source != s->source || x->seen == s->round + 1 || isnan(x->last))
            continue;
        x->last = (double)NAN;
        rc = keep(l, (uint32_t)i, s->round, x->last, e);
    }
    return rc;
}

static int by_source(const void *a, const void *b) {
    const struct series_scrape *x = a, *y = b;
    if (x->source != y->source)
        return x->source < y->source ? -1 : 1;
    return (x->round > y->round) - (x->round < y->round);
}

/* Counting sort by series; rounds ascend already within one. */
int series_log_sort(struct series_log *l, struct err *e) {
    if (l->sorted)
        return 0;
    if (l->nscrapes)
        qsort(l->scrape, l->nscrapes, sizeof *l->scrape, by_source);
    struct series_sample *out = malloc((l->nsamples + 1) * sizeof *out);
    if (!out)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (size_t i = 0; i < l->nseries; i++)
        l->series[i].n = 0;
    for (size_t i = 0; i < l->nsamples; i++)
        l->series[l->sample[i].series].n++;
    uint32_t at = 0;
    for (size_t i = 0; i < l->nseries; i++) {
        l->series[i].first = at;
        at += l->series[i].n;
        l->series[i].n = 0;
    }
    for (size_t i = 0; i < l->nsamples; i++) {
        struct series *x = &l->series[l->sample[i].series];
        out[x->first + x->n++] = l->sample[i];
    }
    free(l->sample);
    l->sample = out;
    l->sample_cap = l->nsamples + 1;
    l->sorted = true;
    return 0;
}

/* ---- from a store ---- */

int series_restore_scrape(struct series_log *l, const struct series_scrape *s, struct err *e) {
    int rc = grow(&l->scrape, &l->scrape_cap, l->nscrapes + 1, sizeof *l->scrape, e);
    if (!rc)
        l->scrape[l->nscrapes++] = *s;
    return rc;
}

int series_restore_series(struct series_log *l, uint32_t source, enum prom_kind kind,
                          const char *name, const char *labels, struct err *e) {
    if (l->nseries == SERIES_MAX)
        return err_set(e, ASSAY_EINPUT, "more than %d series", SERIES_MAX);
    return add_series(l, source, kind, name, labels, e);
}

int series_restore_sample(struct series_log *l, uint32_t series, uint32_t round, double value,
                          struct err *e) {
    if (l->nsamples == SERIES_SAMPLES_MAX || series >= l->nseries)
        return err_set(e, ASSAY_EINPUT, "a sample belongs to no series, or there are too many");
    l->sorted = false;
    return keep(l, series, round, value, e);
}
