/* Building request bodies. No network, no clock. */
#include "backends/http/body.h"

#include "harness/core/rng.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Special and byte tokens sit at the low end of most vocabularies and, added later, at the high end
 * (Llama 3: from 128000 of 128256); the middle is ordinary text. Five-digit ids also make the
 * number of bytes of a request depend on its length alone. */
enum { ID_LOW = 10000, ID_SPAN_MAX = 65536, VOCAB_UNKNOWN = 32000 };

/* Common English words of three to five letters: with the space before it, each is one token in the
 * vocabularies of the large models, but no vocabulary promises it. */
// clang-format off
static const char *const common_words[256] = {
    "able",  "about", "above", "after", "again", "age",   "ago",   "air",   "all",   "alone",
    "along", "also",  "among", "and",   "any",   "apple", "area",  "arm",   "army",  "art",
    "ask",   "away",  "baby",  "back",  "bad",   "ball",  "bank",  "bar",   "base",  "bed",
    "been",  "begin", "best",  "big",   "bird",  "bit",   "black", "block", "blood", "blue",
    "board", "boat",  "body",  "book",  "born",  "both",  "box",   "boy",   "break", "bring",
    "brown", "build", "but",   "buy",   "call",  "came",  "camp",  "can",   "car",   "card",
    "care",  "carry", "case",  "cat",   "catch", "cause", "cell",  "cent",  "chair", "check",
    "chief", "child", "city",  "claim", "class", "clean", "clear", "close", "cloud", "coast",
    "cold",  "color", "come",  "cool",  "copy",  "corn",  "cost",  "could", "count", "cover",
    "crop",  "cross", "crowd", "cry",   "cup",   "cut",   "dance", "dark",  "data",  "day",
    "dead",  "deal",  "deep",  "did",   "die",   "dog",   "door",  "down",  "draw",  "dream",
    "dress", "drink", "drive", "drop",  "dry",   "each",  "ear",   "early", "earth", "east",
    "easy",  "eat",   "edge",  "egg",   "eight", "else",  "end",   "enemy", "enjoy", "enter",
    "equal", "even",  "ever",  "every", "exact", "eye",   "face",  "fact",  "fair",  "fall",
    "far",   "farm",  "fast",  "fat",   "fear",  "feed",  "feel",  "feet",  "few",   "field",
    "fight", "fill",  "final", "find",  "fine",  "fire",  "first", "fish",  "fit",   "five",
    "flat",  "floor", "flow",  "fly",   "food",  "foot",  "for",   "force", "form",  "four",
    "free",  "fresh", "from",  "front", "fruit", "full",  "game",  "gave",  "get",   "girl",
    "give",  "glad",  "glass", "gold",  "good",  "got",   "grand", "grass", "gray",  "great",
    "green", "grew",  "group", "grow",  "guess", "guide", "had",   "hair",  "half",  "hand",
    "happy", "hard",  "has",   "hat",   "have",  "head",  "hear",  "heart", "heat",  "heavy",
    "held",  "help",  "her",   "here",  "high",  "hill",  "him",   "his",   "hit",   "hold",
    "hole",  "home",  "hope",  "horse", "hot",   "hour",  "house", "how",   "huge",  "human",
    "ice",   "idea",  "inch",  "into",  "iron",  "jump",  "just",  "keep",  "key",   "kind",
    "king",  "knew",  "know",  "lady",  "lake",  "land",  "large", "last",  "late",  "laugh",
    "law",   "lay",   "lead",  "leaf",  "learn", "least",
};
// clang-format on
const struct body_words body_common_words = {common_words, 256};

/* Four 16-bit draws a 64-bit hash of (seed, block of four positions). */
static uint64_t block_hash(uint64_t content_seed, uint32_t block) {
    uint64_t state = content_seed ^ ((uint64_t)block * UINT64_C(0xD1342543DE82EF95));
    return splitmix64(&state);
}

static uint32_t lane(uint64_t hash, uint32_t position) {
    return (uint32_t)(hash >> (position % 4 * 16)) & 0xFFFF;
}

uint32_t body_token_id(const struct body_template *t, uint64_t content_seed, uint32_t position) {
    uint32_t draw = lane(block_hash(content_seed, position / 4), position);
    return t->id_low + (uint32_t)((uint64_t)draw * t->id_count >> 16);
}

const char *body_word(const struct body_words *w, uint64_t content_seed, uint32_t position) {
    uint32_t draw = lane(block_hash(content_seed, position / 4), position);
    return w->word[(uint64_t)draw * w->count >> 16];
}

uint32_t body_text_end(uint32_t from, uint32_t to, uint32_t overhead) {
    return to > from + overhead ? to - overhead : to > from ? from + 1 : to;
}

void body_put_escaped(struct buf *out, const char *s) {
    for (;;) {
        size_t n = 0;
        while ((unsigned char)s[n] >= 0x20 && s[n] != '"' && s[n] != '\\')
            n++;
        buf_put(out, s, n);
        s += n;
        if (!*s)
            break;
        if (*s == '"' || *s == '\\')
            buf_printf(out, "\\%c", *s);
        else
            buf_printf(out, "\\u%04x", (unsigned)(unsigned char)*s);
        s++;
    }
}

void body_put_json_string(struct buf *out, const char *s) {
    buf_putc(out, '"');
    body_put_escaped(out, s);
    buf_putc(out, '"');
}

/* Two decimal digits each, 00 to 99. */
static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                            "25262728293031323334353637383940414243444546474849"
                            "50515253545556575859606162636465666768697071727374"
                            "75767778798081828384858687888990919293949596979899";
_Static_assert(sizeof pairs == 201, "a hundred pairs");

/* Decimal digits of v at p; returns the end. At most 10. */
static char *put_decimal(char *p, uint32_t v) {
    if (v >= 10000 && v < 100000) { /* the usual id */
        uint32_t low = v % 10000;
        p[0] = (char)('0' + v / 10000);
        memcpy(p + 1, pairs + low / 100 * 2, 2);
        memcpy(p + 3, pairs + low % 100 * 2, 2);
        return p + 5;
    }
    char digits[10];
    int n = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n)
        *p++ = digits[--n];
    return p;
}

/* Tokens of one source: positions [at, at + count) of the content of a seed. */
struct run {
    uint64_t seed;
    uint32_t at, count;
};

static struct run run_at(const struct request *r, uint64_t salt, uint32_t position, uint32_t to) {
    struct run run = {r->content_seed ^ salt, position, to - position};
    if (position < r->common) {
        run.seed = r->common_seed ^ salt;
        run.count = r->common < to ? r->common - position : run.count;
        return run;
    }
    if (r->blocks && position / r->block_tokens < r->nblocks) {
        uint64_t state = r->blocks[position / r->block_tokens] ^ r->block_seed;
        run.seed = splitmix64(&state) ^ salt;
        run.at = position % r->block_tokens;
        if (run.count > r->block_tokens - run.at)
            run.count = r->block_tokens - run.at;
    }
    return run;
}

void body_put_ids(const struct body_template *t, const struct request *r, uint64_t salt,
                  uint32_t from, uint32_t to, struct buf *out) {
    if (from >= to)
        return;
    char *start = buf_reserve(out, (size_t)(to - from) * 11 + 2), *p = start;
    if (!start)
        return;
    const uint64_t count = t->id_count;
    const uint32_t low = t->id_low;
    for (uint32_t i = from; i < to;) {
        struct run run = run_at(r, salt, i, to);
        uint32_t end = run.at + run.count;
        uint64_t hash = block_hash(run.seed, run.at / 4) >> (run.at % 4 * 16);
        for (uint32_t j = run.at; j < end; j++, hash >>= 16) {
            if (j % 4 == 0)
                hash = block_hash(run.seed, j / 4);
            p = put_decimal(p, low + (uint32_t)((hash & 0xFFFF) * count >> 16));
            *p++ = ',';
        }
        i += run.count;
    }
    out->n += (size_t)(p - 1 - start);
}

void body_put_words(const struct body_words *w, const struct request *r, uint64_t salt, uint32_t from,
                    uint32_t to, struct buf *out) {
    if (from >= to)
        return;
    char *start = buf_reserve(out, (size_t)(to - from) * (BODY_WORD_BYTES + 1) + 2), *p = start;
    if (!start)
        return;
    for (uint32_t i = from; i < to;) {
        struct run run = run_at(r, salt, i, to);
        for (uint32_t j = 0; j < run.count; j++) {
            const char *word = body_word(w, run.seed, run.at + j);
            size_t n = strlen(word);
            if (i + j > from)
                *p++ = ' ';
            memcpy(p, word, n);
            p += n;
        }
        i += run.count;
    }
    out->n += (size_t)(p - start);
}

void body_begin(const struct body_template *t, struct buf *out) {
    buf_clear(out);
    buf_put(out, t->head, t->head_bytes);
}

int body_end(const struct body_template *t, uint32_t osl_tokens, struct buf *out, struct err *e) {
    char osl[10];
    size_t osl_bytes = (size_t)(put_decimal(osl, osl_tokens) - osl);
    buf_put(out, t->middle, t->middle_bytes);
    buf_put(out, osl, osl_bytes);
    if (t->min_tokens) {
        buf_put(out, t->minimum, t->minimum_bytes);
        buf_put(out, osl, osl_bytes);
    }
    buf_put(out, t->tail, t->tail_bytes);
    return buf_check(out, "the request body", e);
}

int body_build(const struct body_template *t, const struct request *r, struct buf *out,
               struct err *e) {
    bool ids = t->ids && !r->text;
    body_begin(t, out);
    bool messages = t->protocol->messages;
    buf_puts(out, ids ? "[" : messages ? "[{\"role\":\"user\",\"content\":\"" : "\"");
    if (r->text)
        body_put_escaped(out, r->text);
    else if (t->ids)
        body_put_ids(t, r, 0, 0, r->isl, out);
    else
        body_put_words(t->words, r, 0, 0, body_text_end(0, r->isl, t->overhead.first), out);
    buf_puts(out, ids ? "]" : messages ? "\"}]" : "\"");
    return body_end(t, r->osl, out, e);
}

static int put_extra(struct buf *tail, const struct body_options *o, struct err *e) {
    static const char *const own[] = {"model",
                                      "prompt",
                                      "messages",
                                      "input",
                                      "stream",
                                      "stream_options",
                                      "max_tokens",
                                      "max_completion_tokens",
                                      "max_output_tokens",
                                      "min_tokens",
                                      "ignore_eos",
                                      "temperature"};
    json_error_t je;
    json_t *extra = json_loads(o->extra, JSON_REJECT_DUPLICATES, &je);
    int rc = 0;
    char *text = NULL;
    if (!json_is_object(extra)) {
        rc = err_set(e, ASSAY_EUSAGE, "-o extra: expected a JSON object, found '%.80s'%s%s",
                     o->extra, extra ? "" : ": ", extra ? "" : je.text);
        goto out;
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (json_object_get(extra, own[i])) {
            rc = err_set(e, ASSAY_EUSAGE, "-o extra: member '%s' is written by the backend itself",
                         own[i]);
            goto out;
        }
    if (o->protocol->system_apart && json_object_get(extra, "system")) {
        rc = err_set(e, ASSAY_EUSAGE,
                     "-o extra: member 'system' belongs to the workload's messages");
        goto out;
    }
    if (json_object_size(extra)) {
        text = json_dumps(extra, JSON_COMPACT);
        if (!text) {
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
            goto out;
        }
        buf_putc(tail, ',');
        buf_put(tail, text + 1, strlen(text) - 2);
    }
out:
    free(text);
    json_decref(extra);
    return rc;
}

int body_template_init(struct body_template *t, const struct body_options *o, struct err *e) {
    const struct protocol *p = o->protocol;
    *t = (struct body_template){.protocol = p,
                                .ids = !p->messages && !o->text,
                                .min_tokens = o->fields & FIELD_MIN_TOKENS,
                                .words = o->words ? o->words : &body_common_words,
                                .overhead = o->overhead};
    struct buf head, middle, minimum, tail;
    struct buf *all[] = {&head, &middle, &minimum, &tail};
    for (size_t i = 0; i < 4; i++)
        buf_init(all[i], 1024 * 1024);
    int rc = 0;

    uint32_t vocab = VOCAB_UNKNOWN;
    if (o->vocab > 0)
        vocab = o->vocab > INT32_MAX ? INT32_MAX : (uint32_t)o->vocab;
    uint32_t high = vocab / 4 * 3;
    t->id_low = high > ID_LOW * 3 / 2 ? ID_LOW : vocab / 4;
    t->id_count = high > t->id_low ? high - t->id_low : 1;
    if (t->id_count > ID_SPAN_MAX)
        t->id_count = ID_SPAN_MAX;

    buf_puts(&head, "{\"model\":");
    body_put_json_string(&head, o->model);
    buf_printf(&head, ",\"%s\":", p->prompt_key);
    buf_putc(&middle, ',');
    body_put_json_string(&middle, o->max_tokens_key ? o->max_tokens_key : p->max_tokens_key);
    buf_putc(&middle, ':');
    buf_puts(&minimum, ",\"min_tokens\":");
    if (o->fields & FIELD_IGNORE_EOS)
        buf_puts(&tail, ",\"ignore_eos\":true");
    if (o->temperature >= 0)
        buf_printf(&tail, ",\"temperature\":%.6g", o->temperature);
    buf_puts(&tail, o->stream ? ",\"stream\":true" : ",\"stream\":false");
    if (o->stream && o->fields & (FIELD_INCLUDE_USAGE | FIELD_CONTINUOUS_USAGE))
        buf_printf(&tail, ",\"stream_options\":{\"include_usage\":true%s}",
                   o->fields & FIELD_CONTINUOUS_USAGE ? ",\"continuous_usage_stats\":true" : "");
    if (o->fields & FIELD_RETURN_TOKEN_IDS)
        buf_puts(&tail, ",\"return_token_ids\":true");
    if (o->extra && (rc = put_extra(&tail, o, e)))
        goto out;
    buf_putc(&tail, '}');
    for (size_t i = 0; i < 4 && !rc; i++)
        rc = buf_check(all[i], "the request template", e);
    if (rc)
        goto out;
    t->head = buf_take(&head, &t->head_bytes);
    t->middle = buf_take(&middle, &t->middle_bytes);
    t->minimum = buf_take(&minimum, &t->minimum_bytes);
    t->tail = buf_take(&tail, &t->tail_bytes);
out:
    for (size_t i = 0; i < 4; i++)
        buf_release(all[i]);
    if (rc)
        body_template_release(t);
    return rc;
}

void body_template_release(struct body_template *t) {
    free(t->head);
    free(t->middle);
    free(t->minimum);
    free(t->tail);
    *t = (struct body_template){0};
}
