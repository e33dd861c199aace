/* The exposition format, line by line. See the header for what is read and what is refused. */
#include "harness/measure/prometheus.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct prom_family {
    struct str name;
    enum prom_kind kind;
    uint64_t hash;
};

static const struct {
    const char *word;
    enum prom_kind kind;
} kinds[] = {
    {"counter", PROM_COUNTER},       {"gauge", PROM_GAUGE},     {"gaugehistogram", PROM_OTHER},
    {"histogram", PROM_HISTOGRAM},   {"info", PROM_OTHER},      {"stateset", PROM_OTHER},
    {"summary", PROM_SUMMARY},       {"unknown", PROM_UNTYPED}, {"untyped", PROM_UNTYPED},
};

/* Which suffixes a family of a kind gives to its samples. */
static const struct {
    const char *suffix;
    unsigned kinds; /* bits 1 << enum prom_kind */
} suffixes[] = {
    {"_bucket", 1u << PROM_HISTOGRAM | 1u << PROM_OTHER},
    {"_count", 1u << PROM_HISTOGRAM | 1u << PROM_SUMMARY},
    {"_created", 1u << PROM_COUNTER | 1u << PROM_HISTOGRAM | 1u << PROM_SUMMARY},
    {"_gcount", 1u << PROM_OTHER},
    {"_gsum", 1u << PROM_OTHER},
    {"_info", 1u << PROM_OTHER},
    {"_sum", 1u << PROM_HISTOGRAM | 1u << PROM_SUMMARY},
    {"_total", 1u << PROM_COUNTER},
};

static const char *const kind_names[PROM_KINDS] = {"untyped",   "counter", "gauge",
                                                   "histogram", "summary", "other"};

const char *prom_kind_name(enum prom_kind k) {
    return (size_t)k < PROM_KINDS ? kind_names[k] : "untyped";
}

enum prom_kind prom_kind_parse(const char *name) {
    size_t k = 0;
    while (k < PROM_KINDS && strcmp(kind_names[k], name) != 0)
        k++;
    return (enum prom_kind)k;
}

void prom_init(struct prom *p, const char *source, bool openmetrics, prom_sample_fn *fn,
               void *ctx) {
    *p = (struct prom){.source = source, .openmetrics = openmetrics, .fn = fn, .ctx = ctx};
    buf_init(&p->line, PROM_LINE_MAX_BYTES);
    buf_init(&p->text, PROM_LINE_MAX_BYTES);
}

void prom_release(struct prom *p) {
    buf_release(&p->line);
    buf_release(&p->text);
    arena_release(&p->arena);
}

/* ---- families ---- */

static uint64_t hash_of(struct str s) {
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.p[i]) * UINT64_C(1099511628211);
    return h;
}

/* The slot of a name, or the empty one where it would be. */
static struct prom_family **slot_of(struct prom_family **slots, size_t n, struct str name,
                                    uint64_t hash) {
    size_t i = (size_t)hash & (n - 1);
    while (slots[i] && (slots[i]->hash != hash || !str_is(slots[i]->name, name.p, name.n)))
        i = (i + 1) & (n - 1);
    return &slots[i];
}

static const struct prom_family *family_find(const struct prom *p, struct str name) {
    return p->nslots ? *slot_of(p->slots, p->nslots, name, hash_of(name)) : NULL;
}

static int family_add(struct prom *p, struct str name, enum prom_kind kind, struct err *e) {
    if (2 * (p->nfamilies + 1) > p->nslots) {
        size_t n = p->nslots ? 2 * p->nslots : 256;
        struct prom_family **slots = arena_alloc(&p->arena, n, sizeof *slots);
        if (!slots)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        for (size_t i = 0; i < p->nslots; i++)
            if (p->slots[i])
                *slot_of(slots, n, p->slots[i]->name, p->slots[i]->hash) = p->slots[i];
        p->slots = slots;
        p->nslots = n;
    }
    uint64_t hash = hash_of(name);
    struct prom_family **at = slot_of(p->slots, p->nslots, name, hash);
    if (!*at) {
        struct prom_family *f = arena_alloc(&p->arena, 1, sizeof *f);
        char *copy = arena_strndup(&p->arena, name.p, name.n);
        if (!f || !copy)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        *f = (struct prom_family){.name = {copy, name.n}, .hash = hash};
        *at = f;
        p->nfamilies++;
    }
    (*at)->kind = kind;
    return 0;
}

/* The name itself, else the name without a suffix that the found family's kind gives. */
static const struct prom_family *family_of_sample(const struct prom *p, struct str name) {
    const struct prom_family *f = family_find(p, name);
    for (size_t i = 0; !f && i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t n = strlen(suffixes[i].suffix);
        if (name.n <= n || memcmp(name.p + name.n - n, suffixes[i].suffix, n) != 0)
            continue;
        f = family_find(p, (struct str){name.p, name.n - n});
        if (f && !(suffixes[i].kinds & 1u << f->kind))
            f = NULL;
    }
    return f;
}

/* ---- one line ---- */

struct cursor {
    const struct prom *p;
    const char *begin, *at, *end;
};

static int bad(const struct cursor *c, const char *expected, struct err *e) {
    size_t left = (size_t)(c->end - c->at), n = left < 24 ? left : 24;
    char found[25];
    for (size_t i = 0; i < n; i++)
        found[i] = c->at[i] >= ' ' && c->at[i] < 127 ? c->at[i] : '?';
    found[n] = 0;
    long long line = c->p->line_number, column = c->at - c->begin + 1;
    if (!left)
        return err_set(e, ASSAY_EINPUT, "%s:%lld:%lld: expected %s, found the end of the line",
                       c->p->source, line, column, expected);
    return err_set(e, ASSAY_EINPUT, "%s:%lld:%lld: expected %s, found '%s'", c->p->source, line,
                   column, expected, found);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static void skip_blanks(struct cursor *c) {
    while (c->at < c->end && is_blank(*c->at))
        c->at++;
}

static bool name_char(char c, bool first, bool colon) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colon && c == ':') ||
           (!first && c >= '0' && c <= '9');
}

static int take_name(struct cursor *c, bool colon, const char *what, struct str *out,
                     struct err *e) {
    const char *from = c->at;
    while (c->at < c->end && name_char(*c->at, c->at == from, colon))
        c->at++;
    *out = (struct str){from, (size_t)(c->at - from)};
    return out->n ? 0 : bad(c, what, e);
}

/* Up to the next blank. */
static struct str take_word(struct cursor *c) {
    const char *from = c->at;
    while (c->at < c->end && !is_blank(*c->at))
        c->at++;
    return (struct str){from, (size_t)(c->at - from)};
}

static bool same_word(struct str s, const char *word) {
    if (s.n != strlen(word))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if ((s.p[i] | 0x20) != word[i])
            return false;
    return true;
}

/* A decimal number, NaN, Inf or +-Inf, as a whole word; nothing else that strtod takes. */
static int take_number(struct cursor *c, const char *what, double *out, struct err *e) {
    enum { NUMBER_MAX = 63 };
    const char *from = c->at;
    struct str w = take_word(c), digits = w;
    char text[NUMBER_MAX + 1], *stop;
    bool negative = w.n && *w.p == '-';
    if (w.n && (*w.p == '-' || *w.p == '+'))
        digits = (struct str){w.p + 1, w.n - 1};
    if (same_word(digits, "nan")) {
        *out = (double)NAN;
        return 0;
    }
    if (same_word(digits, "inf") || same_word(digits, "infinity")) {
        *out = negative ? -(double)INFINITY : (double)INFINITY;
        return 0;
    }
    bool fine = digits.n && w.n <= NUMBER_MAX;
    for (size_t i = 0; fine && i < digits.n; i++)
        fine = (digits.p[i] >= '0' && digits.p[i] <= '9') || digits.p[i] == '.' ||
               (i && ((digits.p[i] | 0x20) == 'e' || digits.p[i] == '-' || digits.p[i] == '+'));
    if (fine) {
        memcpy(text, w.p, w.n);
        text[w.n] = 0;
        *out = strtod(text, &stop);
        fine = stop == text + w.n;
    }
    if (fine)
        return 0;
    c->at = from;
    return bad(c, what, e);
}

/* The rest of a quoted value; undoes its escapes into p->text when it has any. The text buffer was
 * given room for the whole line, so that it does not move. */
static int take_quoted(struct prom *p, struct cursor *c, struct str *out, struct err *e) {
    const char *from = c->at;
    while (c->at < c->end && *c->at != '"' && *c->at != '\\')
        c->at++;
    if (c->at < c->end && *c->at == '"') {
        *out = (struct str){from, (size_t)(c->at++ - from)};
        return 0;
    }
    size_t start = p->text.n;
    buf_put(&p->text, from, (size_t)(c->at - from));
    while (c->at < c->end && *c->at != '"') {
        char ch = *c->at++;
        if (ch == '\\') {
            if (c->at == c->end)
                break;
            ch = *c->at++;
            if (ch == 'n')
                ch = '\n';
            else if (ch != '\\' && ch != '"')
                buf_putc(&p->text, '\\'); /* unknown escapes stay as they are */
        }
        buf_putc(&p->text, ch);
    }
    if (c->at == c->end)
        return bad(c, "'\"'", e);
    c->at++;
    *out = (struct str){p->text.p + start, p->text.n - start};
    return 0;
}

/* From behind '{' to behind '}'. */
static int take_labels(struct prom *p, struct cursor *c, int *n, struct err *e) {
    int rc;
    *n = 0;
    for (;;) {
        skip_blanks(c);
        if (c->at < c->end && *c->at == '}') {
            c->at++;
            return 0;
        }
        if (*n == PROM_LABELS_MAX)
            return bad(c, "at most 64 labels", e);
        struct prom_label *l = &p->label[*n];
        const char *name_at = c->at;
        if ((rc = take_name(c, false, *n ? "a label name" : "a label name or '}'", &l->name, e)))
            return rc;
        for (int i = 0; i < *n; i++)
            if (str_is(l->name, p->label[i].name.p, p->label[i].name.n)) {
                c->at = name_at;
                return bad(c, "each label name once", e);
            }
        skip_blanks(c);
        if (c->at == c->end || *c->at != '=')
            return bad(c, "'='", e);
        c->at++;
        skip_blanks(c);
        if (c->at == c->end || *c->at != '"')
            return bad(c, "'\"'", e);
        c->at++;
        if ((rc = take_quoted(p, c, &l->value, e)))
            return rc;
        ++*n;
        skip_blanks(c);
        if (c->at < c->end && *c->at == ',')
            c->at++;
        else if (c->at == c->end || *c->at != '}')
            return bad(c, "',' or '}'", e);
    }
}

/* Behind '#': HELP and UNIT are not needed, TYPE and EOF are; all else is a comment. */
static int comment(struct prom *p, struct cursor *c, struct err *e) {
    skip_blanks(c);
    struct str word = take_word(c), name;
    if (p->openmetrics && str_is(word, "EOF", 3)) {
        p->ended = true;
        return 0;
    }
    if (!str_is(word, "TYPE", 4))
        return 0;
    skip_blanks(c);
    int rc = take_name(c, true, "a metric name", &name, e);
    if (rc)
        return rc;
    if (c->at < c->end && !is_blank(*c->at))
        return bad(c, "a metric name", e);
    skip_blanks(c);
    const char *at = c->at;
    word = take_word(c);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (str_is(word, kinds[i].word, strlen(kinds[i].word))) {
            if (p->nfamilies >= PROM_FAMILIES_MAX)
                return bad(c, "at most 65536 metric families", e);
            return family_add(p, name, kinds[i].kind, e);
        }
    c->at = at;
    return bad(c, "counter, gauge, histogram, summary or untyped", e);
}

static int sample(struct prom *p, struct cursor *c, struct err *e) {
    struct prom_sample s = {.labels = p->label};
    int rc = take_name(c, true, "a metric name, '#' or an empty line", &s.name, e);
    if (rc)
        return rc;
    bool apart = c->at < c->end && is_blank(*c->at);
    skip_blanks(c);
    if (c->at < c->end && *c->at == '{') {
        c->at++;
        if ((rc = take_labels(p, c, &s.nlabels, e)))
            return rc;
        skip_blanks(c);
    } else if (!apart) {
        return bad(c, "'{' or a blank and a value", e);
    }
    if ((rc = take_number(c, "a number", &s.value, e)))
        return rc;
    skip_blanks(c);
    if (c->at < c->end && *c->at != '#') {
        double t = 0;
        const char *from = c->at;
        rc = take_number(c, "a time stamp, an exemplar or the end of the line", &t, e);
        if (rc)
            return rc;
        if (!isfinite(t)) {
            c->at = from;
            return bad(c, "a finite time stamp", e);
        }
        s.has_timestamp = true;
        s.timestamp_s = p->openmetrics ? t : t / 1000;
        skip_blanks(c);
        if (c->at < c->end && *c->at != '#')
            return bad(c, "an exemplar or the end of the line", e);
    }
    const struct prom_family *f = family_of_sample(p, s.name);
    s.family = f ? f->name : s.name;
    s.kind = f ? f->kind : PROM_UNTYPED;
    p->samples++;
    return p->fn(p->ctx, &s, e);
}

static int one_line(struct prom *p, const char *at, size_t n, struct err *e) {
    p->line_number++;
    if (n && at[n - 1] == '\r')
        n--;
    struct cursor c = {p, at, at, at + n};
    if (p->ended)
        return n ? bad(&c, "nothing after # EOF", e) : 0;
    skip_blanks(&c);
    if (c.at == c.end)
        return 0;
    if (*c.at == '#') {
        c.at++;
        return comment(p, &c, e);
    }
    buf_clear(&p->text);
    if (memchr(at, '\\', n) && !buf_reserve(&p->text, n))
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    return sample(p, &c, e);
}

static int keep_part(struct prom *p, const char *at, size_t n, struct err *e) {
    buf_put(&p->line, at, n);
    if (!p->line.failed)
        return 0;
    return err_set(e, ASSAY_EINPUT, "%s:%lld:1: expected a line of at most %d bytes", p->source,
                   (long long)p->line_number + 1, PROM_LINE_MAX_BYTES);
}

int prom_feed(struct prom *p, const void *bytes, size_t n, struct err *e) {
    const char *at = bytes, *end = n ? at + n : at, *lf;
    int rc = 0;
    while (!rc && at < end && (lf = memchr(at, '\n', (size_t)(end - at)))) {
        size_t length = (size_t)(lf - at);
        if (p->line.n) {
            rc = keep_part(p, at, length, e);
            if (!rc)
                rc = one_line(p, p->line.p, p->line.n, e);
            buf_clear(&p->line);
        } else if (length > PROM_LINE_MAX_BYTES) {
            rc = keep_part(p, at, length, e);
        } else {
            rc = one_line(p, at, length, e);
        }
        at = lf + 1;
    }
    return rc || at == end ? rc : keep_part(p, at, (size_t)(end - at), e);
}

int prom_finish(struct prom *p, struct err *e) {
    int rc = p->line.n ? one_line(p, p->line.p, p->line.n, e) : 0;
    buf_clear(&p->line);
    if (!rc && p->openmetrics && !p->ended)
        rc = err_set(e, ASSAY_EINPUT, "%s:%lld:1: expected '# EOF' at the end: the text was cut",
                     p->source, (long long)p->line_number + 1);
    return rc;
}
