/* The components of a tokenizer.json around its model, each from a row of a table of what is known.
 */
#include "workloads/tokenizer/tokenizer_internal.h"

#include "harness/core/json.h"

#include <stdio.h>
#include <string.h>

struct loading {
    struct tokenizer *t;
    const char *name, *part; /* file, "normalizer" … */
    struct err *e;
    int depth;
    int rc;       /* the first member of a wrong type */
    char at[256]; /* JSON pointer of the component being read */
};

static const char *type_of(const json_t *v) {
    const char *s = json_string_value(json_object_get(v, "type"));
    return s ? s : "?";
}

static int expected(struct loading *l, const char *key, const char *what, const json_t *found) {
    char text[64];
    json_excerpt(found, text, sizeof text);
    return err_set(l->e, ASSAY_EINPUT, "%s: at %s%s%s: expected %s, found %s", l->name, l->at,
                   key ? "/" : "", key ? key : "", what, text);
}

/* A boolean that may be left out; one of another type fails the component (l->rc). */
static bool flag(struct loading *l, const json_t *v, const char *key, bool otherwise) {
    const json_t *b = json_object_get(v, key);
    if (b && !json_is_boolean(b) && !l->rc)
        l->rc = expected(l, key, "a boolean", b);
    return b ? json_is_true(b) : otherwise;
}

static size_t count_member(struct loading *l, const json_t *v, const char *key) {
    const json_t *n = json_object_get(v, key);
    if ((!json_is_integer(n) || json_integer_value(n) < 0 || json_integer_value(n) > ID_MAX) &&
        !l->rc)
        l->rc = expected(l, key, "a count", n);
    return (size_t)json_integer_value(n);
}

static int unknown(struct loading *l, const json_t *v, const char *what) {
    if (!json_is_object(v) || !json_is_string(json_object_get(v, "type")))
        return expected(l, json_is_object(v) ? "type" : NULL,
                        json_is_object(v) ? "a string" : "an object with a type",
                        json_is_object(v) ? json_object_get(v, "type") : v);
    return err_set(l->e, ASSAY_EINPUT, "%s: at %s: %s of type '%.40s' is not known here%s%s",
                   l->name, l->at, l->part, type_of(v), what ? ": " : "", what ? what : "");
}

static int text_member(struct loading *l, const json_t *v, const char *key, struct str *out) {
    const json_t *s = json_object_get(v, key);
    if (!json_is_string(s))
        return expected(l, key, "a string", s);
    out->n = json_string_length(s);
    out->p = arena_strndup(&l->t->arena, json_string_value(s), out->n);
    return out->p ? 0 : err_set(l->e, ASSAY_ENOMEM, "out of memory");
}

static int char_member(struct loading *l, const json_t *v, const char *key, struct str *out) {
    int rc = text_member(l, v, key, out);
    if (!rc && (!out->n || utf8_len((uint8_t)out->p[0]) != out->n))
        rc = expected(l, key, "one character", json_object_get(v, key));
    return rc;
}

/* {"String": s} into *literal, or {"Regex": r} into *code (and the pattern in *literal). */
static int pattern_member(struct loading *l, const json_t *v, struct str *literal,
                          pcre2_code **code) {
    const json_t *p = json_object_get(v, "pattern");
    bool regex = json_object_get(p, "Regex");
    if (json_object_size(p) != 1)
        return expected(l, "pattern", "an object with String or Regex", p);
    int rc = text_member(l, p, regex ? "Regex" : "String", literal);
    if (rc)
        return rc;
    if (!literal->n)
        return expected(l, "pattern", "a pattern that is not empty", json_object_get(p, "String"));
    *code = NULL;
    if (!regex)
        return 0;
    char why[160];
    if (l->t->ncodes == STEPS_MAX || regex_compile(literal->p, literal->n, code, why, sizeof why))
        return err_set(l->e, ASSAY_EINPUT, "%s: at %s/pattern: '%.60s': %s", l->name, l->at,
                       literal->p, l->t->ncodes == STEPS_MAX ? "one too many" : why);
    l->t->codes[l->t->ncodes++] = *code;
    return 0;
}

typedef int (*step_fn)(struct loading *l, json_t *v);

/* Sequences are flattened: applying one after the other is what they mean. */
static int each(struct loading *l, json_t *v, const char *list, step_fn fn) {
    if (strcmp(type_of(v), "Sequence")) {
        int rc = fn(l, v);
        return rc ? rc : l->rc;
    }
    const json_t *items = json_object_get(v, list);
    if (!json_is_array(items))
        return expected(l, list, "an array", items);
    if (++l->depth > 8)
        return unknown(l, v, "more than 8 within each other");
    size_t i, end = strlen(l->at);
    json_t *item;
    int rc = 0;
    json_array_foreach(items, i, item) {
        snprintf(l->at + end, sizeof l->at - end, "/%s/%zu", list, i);
        if (!rc)
            rc = each(l, item, list, fn);
        l->at[end] = '\0';
    }
    l->depth--;
    return rc;
}

static int load_part(struct tokenizer *t, const char *part, json_t *v, const char *list, step_fn fn,
                     const char *name, struct err *e) {
    struct loading l = {.t = t, .name = name, .part = part, .e = e};
    snprintf(l.at, sizeof l.at, "/%s", part);
    return !v || json_is_null(v) ? 0 : each(&l, v, list, fn);
}

static int full(struct loading *l) {
    return err_set(l->e, ASSAY_EINPUT, "%s: at %s: more than %d steps", l->name, l->at,
                   (int)STEPS_MAX);
}

static int norm_step(struct loading *l, json_t *v) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    struct tokenizer *t = l->t;
    if (t->nnorms == STEPS_MAX)
        return full(l);
    struct norm_step *s = &t->norms[t->nnorms];
    const char *type = type_of(v);
    for (int i = 0; i < 4; i++)
        if (!strcmp(type, forms[i])) {
            s->kind = STEP_FORM;
            s->form = norm_new((enum norm_form)i);
            if (!s->form)
                return err_set(l->e, ASSAY_ENOMEM, "out of memory");
            t->nnorms++;
            return 0;
        }
    int rc;
    if (!strcmp(type, "Prepend")) {
        s->kind = STEP_PREPEND;
        rc = text_member(l, v, "prepend", &s->a);
    } else if (!strcmp(type, "Replace")) {
        s->kind = STEP_REPLACE;
        rc = pattern_member(l, v, &s->a, &s->code);
        if (!rc && s->code &&
            regex_may_match_nothing(s->code)) /* the library fails on such a match */
            rc = expected(l, "pattern/Regex", "a pattern that cannot match nothing",
                          json_object_get(json_object_get(v, "pattern"), "Regex"));
        if (!rc)
            rc = text_member(l, v, "content", &s->b);
    } else if (!strcmp(type, "Strip")) {
        s->kind = STEP_STRIP;
        rc = 0;
        s->left = flag(l, v, "strip_left", true), s->right = flag(l, v, "strip_right", true);
    } else if (!strcmp(type, "Lowercase")) {
        s->kind = STEP_LOWERCASE;
        rc = 0;
    } else
        return unknown(l, v, NULL);
    t->nnorms += !rc;
    return rc;
}

int load_normalizer(struct tokenizer *t, json_t *v, const char *name, struct err *e) {
    return load_part(t, "normalizer", v, "normalizers", norm_step, name, e);
}

static int known_regex(struct loading *l, struct split_step *s, const char *pattern) {
    char why[160];
    s->fast = split_known(pattern, strlen(pattern));
    if (s->fast)
        return 0;
    if (l->t->ncodes == STEPS_MAX ||
        regex_compile(pattern, strlen(pattern), &s->code, why, sizeof why))
        return err_set(l->e, ASSAY_EINPUT, "%s: at %s: pattern '%s' does not compile", l->name,
                       l->at, pattern);
    l->t->codes[l->t->ncodes++] = s->code;
    return 0;
}

/* 0 never, 1 always, 2 first; older files have add_prefix_space instead. */
static int prepend_scheme(struct loading *l, const json_t *v, int *out) {
    static const char *const schemes[] = {"never", "always", "first"};
    const json_t *s = json_object_get(v, "prepend_scheme");
    *out = flag(l, v, "add_prefix_space", true);
    if (!s)
        return 0;
    for (int i = 0; i < 3; i++)
        if (json_is_string(s) && !strcmp(json_string_value(s), schemes[i])) {
            *out = i;
            return 0;
        }
    return expected(l, "prepend_scheme", "always, never or first", s);
}

static int split_one(struct loading *l, json_t *v) {
    static const char *const behaviors[] = {"Removed", "Isolated", "MergedWithPrevious",
                                            "MergedWithNext", "Contiguous"};
    struct tokenizer *t = l->t;
    if (t->nsplits + 2 > STEPS_MAX)
        return full(l);
    if (t->byte_level)
        return unknown(l, v, "nothing may follow ByteLevel");
    struct split_step *s = &t->splits[t->nsplits];
    const char *type = type_of(v);
    int rc = 0;
    s->behavior = SPLIT_ISOLATED;
    if (!strcmp(type, "Split")) {
        const char *b = json_string_value(json_object_get(v, "behavior"));
        int which = -1;
        for (int i = 0; i < 5 && b; i++)
            if (!strcmp(b, behaviors[i]))
                which = i;
        if (which < 0)
            return expected(l, "behavior",
                            "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
                            json_object_get(v, "behavior"));
        s->behavior = (enum split_behavior)which;
        s->invert = flag(l, v, "invert", false);
        if ((rc = pattern_member(l, v, &s->literal, &s->code)))
            return rc;
        s->kind = s->code ? SPLIT_MATCHES : SPLIT_LITERAL;
        if (s->code && !t->general)
            s->fast = split_known(s->literal.p, s->literal.n);
        if (s->invert && s->behavior == SPLIT_ISOLATED)
            s->invert = false; /* isolation is symmetric */
        t->nsplits++;
        return 0;
    }
    if (!strcmp(type, "ByteLevel")) {
        if (flag(l, v, "add_prefix_space", true)) {
            s->kind = SPLIT_PREFIX_SPACE;
            s = &t->splits[++t->nsplits];
            s->behavior = SPLIT_ISOLATED;
        }
        if (flag(l, v, "use_regex", true)) {
            s->kind = SPLIT_MATCHES;
            rc = known_regex(l, s, split_gpt2_pattern);
            t->nsplits++;
        }
        t->byte_level = true;
        return rc;
    }
    if (!strcmp(type, "Digits")) {
        bool alone = flag(l, v, "individual_digits", false);
        s->kind = SPLIT_MATCHES;
        s->behavior = alone ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
        rc = known_regex(l, s, "\\p{N}");
    } else if (!strcmp(type, "WhitespaceSplit")) {
        s->kind = SPLIT_MATCHES;
        s->behavior = SPLIT_REMOVED;
        rc = known_regex(l, s, "\\s");
    } else if (!strcmp(type, "Metaspace")) {
        s->kind = SPLIT_METASPACE;
        s->split = flag(l, v, "split", true);
        if ((rc = char_member(l, v, "replacement", &s->literal)) == 0)
            rc = prepend_scheme(l, v, &s->prepend);
    } else
        return unknown(l, v, NULL);
    t->nsplits += !rc;
    return rc;
}

int load_pre_tokenizer(struct tokenizer *t, json_t *v, const char *name, struct err *e) {
    return load_part(t, "pre_tokenizer", v, "pretokenizers", split_one, name, e);
}

static int decode_one(struct loading *l, json_t *v) {
    struct tokenizer *t = l->t;
    if (t->ndecodes == STEPS_MAX)
        return full(l);
    struct decode_step *s = &t->decodes[t->ndecodes];
    const char *type = type_of(v);
    int rc = 0;
    if (!strcmp(type, "ByteLevel"))
        s->kind = DEC_BYTELEVEL;
    else if (!strcmp(type, "ByteFallback"))
        s->kind = DEC_BYTEFALLBACK;
    else if (!strcmp(type, "Fuse"))
        s->kind = DEC_FUSE;
    else if (!strcmp(type, "Strip")) {
        s->kind = DEC_STRIP;
        rc = char_member(l, v, "content", &s->a);
        if (!rc)
            s->start = count_member(l, v, "start"), s->stop = count_member(l, v, "stop");
    } else if (!strcmp(type, "Replace")) {
        pcre2_code *code = NULL;
        s->kind = DEC_REPLACE;
        rc = pattern_member(l, v, &s->a, &code);
        if (!rc && code)
            return unknown(l, v, "replacing by a regular expression");
        if (!rc)
            rc = text_member(l, v, "content", &s->b);
    } else if (!strcmp(type, "Metaspace")) {
        int scheme = 0;
        s->kind = DEC_METASPACE;
        rc = char_member(l, v, "replacement", &s->a);
        if (!rc)
            rc = prepend_scheme(l, v, &scheme);
        s->prepended = scheme != 0;
    } else
        return unknown(l, v, NULL);
    t->ndecodes += !rc;
    return rc;
}

int load_decoder(struct tokenizer *t, json_t *v, const char *name, struct err *e) {
    t->no_decoder = !v || json_is_null(v);
    return load_part(t, "decoder", v, "decoders", decode_one, name, e);
}

static int template_one(struct loading *l, json_t *v) {
    struct tokenizer *t = l->t;
    const char *type = type_of(v);
    if (!strcmp(type, "ByteLevel"))
        return 0; /* moves offsets only */
    if (strcmp(type, "TemplateProcessing"))
        return unknown(l, v, NULL);
    const json_t *single = json_object_get(v, "single"),
                 *table = json_object_get(v, "special_tokens");
    uint32_t before[AFFIX_MAX], after[AFFIX_MAX];
    int nbefore = 0, nafter = 0, seen = 0;
    size_t i;
    json_t *piece;
    json_array_foreach(single, i, piece) {
        const json_t *special = json_object_get(piece, "SpecialToken");
        const json_t *text = json_object_get(piece, "Sequence");
        const char *id = json_string_value(json_object_get(special, "id"));
        if (text) {
            const char *which = json_string_value(json_object_get(text, "id"));
            if (!which || strcmp(which, "A"))
                return expected(l, "single", "the sequence A", json_object_get(text, "id"));
            seen++;
            continue;
        }
        const json_t *ids = id ? json_object_get(json_object_get(table, id), "ids") : NULL;
        if (!json_is_array(ids))
            return unknown(l, v, "a piece that is neither a sequence nor a listed token");
        size_t k;
        json_t *one;
        json_array_foreach(ids, k, one) {
            int *n = seen ? &nafter : &nbefore;
            int64_t value = json_integer_value(one);
            if (*n == AFFIX_MAX || !json_is_integer(one) || value < 0 || value > ID_MAX)
                return unknown(l, v, "too many tokens, or ids that are none");
            (seen ? after : before)[(*n)++] = (uint32_t)value;
        }
    }
    if (seen != 1 || t->nbefore + nbefore > AFFIX_MAX || t->nafter + nafter > AFFIX_MAX)
        return unknown(l, v, "the text must appear in it once");
    /* a later template wraps what the earlier gave */
    memmove(t->before + nbefore, t->before, (size_t)t->nbefore * sizeof *t->before);
    memcpy(t->before, before, (size_t)nbefore * sizeof *before);
    memcpy(t->after + t->nafter, after, (size_t)nafter * sizeof *after);
    t->nbefore += nbefore, t->nafter += nafter;
    return 0;
}

int load_post_processor(struct tokenizer *t, json_t *v, const char *name, struct err *e) {
    return load_part(t, "post_processor", v, "processors", template_one, name, e);
}
