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
};

static const char *type_of(const json_t *v) {
    const char *s = json_string_value(json_object_get(v, "type"));
    return s ? s : "?";
}

static bool flag(const json_t *v, const char *key, bool otherwise) {
    const json_t *b = json_object_get(v, key);
    return b ? json_is_true(b) : otherwise;
}

static int unknown(struct loading *l, const json_t *v, const char *what) {
    char found[64];
    json_excerpt(v, found, sizeof found);
    return err_set(l->e, ASSAY_EINPUT, "%s: at /%s: %s of type '%.40s' is not known here: %s",
                   l->name, l->part, l->part, type_of(v), what ? what : found);
}

static int text_member(struct loading *l, const json_t *v, const char *key, struct str *out) {
    const json_t *s = json_object_get(v, key);
    if (!json_is_string(s))
        return err_set(l->e, ASSAY_EINPUT, "%s: at /%s: %s needs '%s', a string", l->name, l->part,
                       type_of(v), key);
    out->n = json_string_length(s);
    out->p = arena_strndup(&l->t->arena, json_string_value(s), out->n);
    return out->p ? 0 : err_set(l->e, ASSAY_ENOMEM, "out of memory");
}

/* {"String": s} into *literal, or {"Regex": r} into *code (and the pattern in *literal). */
static int pattern_member(struct loading *l, const json_t *v, struct str *literal,
                          pcre2_code **code) {
    const json_t *p = json_object_get(v, "pattern");
    bool regex = json_object_get(p, "Regex");
    if (text_member(l, p, regex ? "Regex" : "String", literal))
        return l->e ? l->e->code : ASSAY_EINPUT;
    if (!literal->n)
        return err_set(l->e, ASSAY_EINPUT, "%s: at /%s: an empty pattern", l->name, l->part);
    *code = NULL;
    if (!regex)
        return 0;
    char why[160];
    if (l->t->ncodes == STEPS_MAX || regex_compile(literal->p, literal->n, code, why, sizeof why))
        return err_set(l->e, ASSAY_EINPUT, "%s: at /%s: pattern '%.60s': %s", l->name, l->part,
                       literal->p, l->t->ncodes == STEPS_MAX ? "one too many" : why);
    l->t->codes[l->t->ncodes++] = *code;
    return 0;
}

typedef int (*step_fn)(struct loading *l, json_t *v);

/* Sequences are flattened: applying one after the other is what they mean. */
static int each(struct loading *l, json_t *v, const char *list, step_fn fn) {
    if (!v || json_is_null(v))
        return 0;
    if (strcmp(type_of(v), "Sequence"))
        return fn(l, v);
    const json_t *items = json_object_get(v, list);
    if (!json_is_array(items) || ++l->depth > 8)
        return unknown(l, v, "a sequence without a list");
    size_t i;
    json_t *item;
    int rc = 0;
    json_array_foreach(items, i, item) {
        if (!rc)
            rc = each(l, item, list, fn);
    }
    l->depth--;
    return rc;
}

static int full(struct loading *l) {
    return err_set(l->e, ASSAY_EINPUT, "%s: at /%s: more than %d steps", l->name, l->part,
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
        if (!rc)
            rc = text_member(l, v, "content", &s->b);
    } else if (!strcmp(type, "Strip")) {
        s->kind = STEP_STRIP;
        s->left = flag(v, "strip_left", true), s->right = flag(v, "strip_right", true);
        rc = 0;
    } else
        return unknown(l, v, NULL);
    t->nnorms += !rc;
    return rc;
}

int load_normalizer(struct tokenizer *t, json_t *v, const char *name, struct err *e) {
    struct loading l = {t, name, "normalizer", e, 0};
    return each(&l, v, "normalizers", norm_step);
}

static int known_regex(struct loading *l, struct split_step *s, const char *pattern) {
    char why[160];
    s->fast = split_known(pattern, strlen(pattern));
    if (s->fast)
        return 0;
    if (l->t->ncodes == STEPS_MAX ||
        regex_compile(pattern, strlen(pattern), &s->code, why, sizeof why))
        return err_set(l->e, ASSAY_EINPUT, "%s: at /%s: pattern '%s' does not compile", l->name,
                       l->part, pattern);
    l->t->codes[l->t->ncodes++] = s->code;
    return 0;
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
            return unknown(l, v, "no such behavior");
        s->behavior = (enum split_behavior)which;
        s->invert = flag(v, "invert", false);
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
        if (flag(v, "add_prefix_space", true)) {
            s->kind = SPLIT_PREFIX_SPACE;
            s = &t->splits[++t->nsplits];
            s->behavior = SPLIT_ISOLATED;
        }
        if (flag(v, "use_regex", true)) {
            s->kind = SPLIT_MATCHES;
            rc = known_regex(l, s, split_gpt2_pattern);
            t->nsplits++;
        }
        t->byte_level = true;
        return rc;
    }
    if (!strcmp(type, "Digits")) {
        bool alone = flag(v, "individual_digits", false);
        s->kind = SPLIT_MATCHES;
        s->behavior = alone ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
        rc = known_regex(l, s, "\\p{N}");
    } else if (!strcmp(type, "WhitespaceSplit")) {
        s->kind = SPLIT_MATCHES;
        s->behavior = SPLIT_REMOVED;
        rc = known_regex(l, s, "\\s");
    } else if (!strcmp(type, "Metaspace")) {
        const char *scheme = json_string_value(json_object_get(v, "prepend_scheme"));
        if (!scheme)
            scheme = flag(v, "add_prefix_space", true) ? "always" : "never";
        s->prepend = !strcmp(scheme, "always") ? 1 : !strcmp(scheme, "first") ? 2 : 0;
        if (!s->prepend && strcmp(scheme, "never"))
            return unknown(l, v, "no such prepend_scheme");
        s->kind = SPLIT_METASPACE;
        s->split = flag(v, "split", true);
        rc = text_member(l, v, "replacement", &s->literal);
    } else
        return unknown(l, v, NULL);
    t->nsplits += !rc;
    return rc;
}

int load_pre_tokenizer(struct tokenizer *t, json_t *v, const char *name, struct err *e) {
    struct loading l = {t, name, "pre_tokenizer", e, 0};
    return each(&l, v, "pretokenizers", split_one);
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
        rc = text_member(l, v, "content", &s->a);
        s->start = (size_t)json_integer_value(json_object_get(v, "start"));
        s->stop = (size_t)json_integer_value(json_object_get(v, "stop"));
    } else if (!strcmp(type, "Replace")) {
        pcre2_code *code = NULL;
        s->kind = DEC_REPLACE;
        rc = pattern_member(l, v, &s->a, &code);
        if (!rc && code)
            return unknown(l, v, "replacing by a regular expression");
        if (!rc)
            rc = text_member(l, v, "content", &s->b);
    } else if (!strcmp(type, "Metaspace")) {
        const char *scheme = json_string_value(json_object_get(v, "prepend_scheme"));
        s->kind = DEC_METASPACE;
        s->prepended = scheme ? strcmp(scheme, "never") != 0 : flag(v, "add_prefix_space", true);
        rc = text_member(l, v, "replacement", &s->a);
    } else
        return unknown(l, v, NULL);
    t->ndecodes += !rc;
    return rc;
}

int load_decoder(struct tokenizer *t, json_t *v, const char *name, struct err *e) {
    struct loading l = {t, name, "decoder", e, 0};
    t->no_decoder = !v || json_is_null(v);
    return each(&l, v, "decoders", decode_one);
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
        const char *id = json_string_value(json_object_get(special, "id"));
        if (json_object_get(piece, "Sequence")) {
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
    struct loading l = {t, name, "post_processor", e, 0};
    return each(&l, v, "processors", template_one);
}
