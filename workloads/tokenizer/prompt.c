/* Building prompts: what each word costs is measured once; a prompt is drawn word by word up to the
 * number wanted, counted whole, and mended at its end where the sum was not what the whole has. */
#include "workloads/tokenizer/prompt.h"

#include "harness/core/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES = 12, PROMPT_MAX_BYTES = TOKENIZER_TEXT_MAX_BYTES, MENDS_MAX = 400 };

// clang-format off
static const char words[][WORD_BYTES] = {
    "a", "able", "about", "above", "across", "add", "after", "again", "against", "age", "air", "all", "almost", "along",
    "also", "always", "among", "an", "and", "animal", "another", "answer", "any", "area", "around", "as", "ask", "at",
    "away", "back", "base", "be", "because", "become", "bed", "before", "began", "behind", "best", "better", "between",
    "big", "black", "blue", "boat", "body", "book", "both", "box", "boy", "bring", "build", "but", "by", "call", "came",
    "can", "car", "care", "carry", "case", "cause", "center", "change", "check", "city", "class", "clear", "close",
    "cold", "color", "come", "common", "complete", "contain", "could", "country", "course", "cover", "cross", "cut",
    "dark", "day", "deep", "did", "differ", "direct", "do", "does", "done", "door", "down", "draw", "drive", "dry",
    "during", "each", "early", "earth", "ease", "east", "eat", "end", "enough", "even", "ever", "every", "example",
    "eye", "face", "fact", "fall", "family", "far", "farm", "fast", "feet", "few", "field", "figure", "fill", "final",
    "find", "fine", "fire", "first", "fish", "five", "fly", "follow", "food", "foot", "for", "force", "form", "found",
    "four", "free", "friend", "from", "front", "full", "game", "gave", "get", "give", "go", "gold", "good", "got",
    "great", "green", "ground", "group", "grow", "had", "half", "hand", "happen", "hard", "has", "have", "he", "head",
    "hear", "heat", "help", "her", "here", "high", "him", "his", "hold", "home", "horse", "hot", "hour", "house", "how",
    "hundred", "idea", "if", "in", "interest", "into", "is", "island", "it", "just", "keep", "kind", "king", "knew",
    "know", "land", "language", "large", "last", "late", "laugh", "lay", "lead", "learn", "leave", "left", "less",
    "let", "letter", "life", "light", "like", "line", "list", "little", "live", "long", "look", "lot", "love", "low",
    "made", "main", "make", "man", "many", "map", "mark", "may", "mean", "measure", "men", "might", "mile", "mind",
    "minute", "miss", "money", "moon", "more", "morning", "most", "mother", "mountain", "move", "much", "music", "must",
    "my", "name", "near", "need", "never", "new", "next", "night", "no", "north", "not", "note", "nothing", "now",
    "number", "object", "of", "off", "often", "oh", "old", "on", "once", "one", "only", "open", "or", "order", "other",
    "our", "out", "over", "own", "page", "paper", "part", "pass", "pattern", "people", "perhaps", "person", "piece",
    "place", "plain", "plan", "plane", "plant", "play", "point", "port", "power", "press", "problem", "product", "pull",
    "put", "question", "quick", "rain", "ran", "reach", "read", "ready", "real", "record", "red", "rest", "right",
    "river", "road", "rock", "room", "round", "rule", "run", "said", "same", "saw", "say", "school", "science", "sea",
    "second", "see", "seem", "self", "sentence", "serve", "set", "several", "shape", "she", "ship", "short", "should",
    "show", "side", "simple", "since", "sing", "sit", "six", "size", "sleep", "slow", "small", "snow", "so", "some",
    "song", "soon", "sound", "south", "space", "special", "spell", "stand", "star", "start", "state", "stay", "step",
    "still", "stood", "stop", "story", "street", "strong", "study", "such", "sun", "sure", "surface", "system", "table",
    "take", "talk", "teach", "tell", "ten", "test", "than", "that", "the", "their", "them", "then", "there", "these",
    "they", "thing", "think", "this", "those", "though", "thought", "thousand", "three", "through", "time", "to",
    "together", "told", "too", "took", "top", "toward", "town", "travel", "tree", "true", "try", "turn", "two", "under",
    "unit", "until", "up", "us", "use", "usual", "very", "voice", "vowel", "wait", "walk", "want", "war", "warm", "was",
    "watch", "water", "way", "we", "week", "well", "went", "were", "west", "what", "wheel", "when", "where", "which",
    "while", "white", "who", "whole", "why", "will", "wind", "with", "wonder", "wood", "word", "work", "world", "would",
    "write", "year", "yes", "yet", "you", "young", "your",
};
/* Tried one after the other where the end does not come out even. */
static const char fillers[][6] = {
    " the", " a", " and", ",", ".", "!", "?", ";", ":", " I", " 1", "-", "s", "e", "a", "1", "0", " x", "x", "z", "q",
    "/", ")", "(", "=", "+", "*", "~", "^", "|",
};
// clang-format on
enum { WORDS = sizeof words / sizeof *words, FILLERS = sizeof fillers / sizeof *fillers };

struct prompt_maker {
    const struct tokenizer *t;
    struct tokenizer_work *w;
    struct buf whole; /* before, text and after */
    uint8_t cost[WORDS], capital_cost[WORDS];
    uint8_t comma_cost, stop_cost;
    uint16_t single[WORDS]; /* see prompt_word */
    size_t nsingle;
    uint16_t cheap[WORDS]; /* of cost 1 */
    size_t ncheap;
};

static int count_text(struct prompt_maker *m, const char *text, size_t *n, struct err *e) {
    return tokenizer_count(m->t, m->w, text, strlen(text), n, e);
}

/* What s adds between others: "the" S " the" against "the the". */
static int cost_between(struct prompt_maker *m, const char *s, size_t without, uint8_t *cost,
                        struct err *e) {
    char text[64];
    size_t n;
    snprintf(text, sizeof text, "the the%s the", s);
    int rc = count_text(m, text, &n, e);
    size_t more = n > without ? n - without : 0;
    *cost = more < UINT8_MAX ? (uint8_t)more : UINT8_MAX;
    return rc;
}

static void capital(char *p) {
    if (*p >= 'a' && *p <= 'z')
        *p = (char)(*p - 'a' + 'A');
}

/* Whether the word is one token alone, and one more at each place: w, "w w", "w w w". */
static int is_single(struct prompt_maker *m, const char *w, bool *single, struct err *e) {
    char text[64];
    size_t n[3] = {0};
    int rc = 0;
    for (int i = 0; i < 3 && !rc; i++) {
        snprintf(text, sizeof text, i == 0 ? "%s" : i == 1 ? "%s %s" : "%s %s %s", w, w, w);
        rc = count_text(m, text, &n[i], e);
    }
    *single = n[0] == 1 && n[1] == 2 && n[2] == 3;
    return rc;
}

/* Every pair of single words, all in one text, must be as many tokens as words. */
static int check_singles(struct prompt_maker *m, struct err *e) {
    size_t n = 0, k = m->nsingle, total = 2 * k * k;
    struct buf text;
    buf_init(&text, PROMPT_MAX_BYTES);
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j < k; j++)
            buf_printf(&text, "%s%s %s", text.n ? " " : "", words[m->single[i]],
                       words[m->single[j]]);
    int rc = buf_check(&text, "a list of words", e);
    if (!rc && k)
        rc = tokenizer_count(m->t, m->w, text.p, text.n, &n, e);
    if (!rc && k && n != total)
        m->nsingle = 0; /* they join: of no use by position */
    buf_release(&text);
    return rc;
}

int prompt_maker_new(const struct tokenizer *t, struct prompt_maker **out, struct err *e) {
    struct prompt_maker *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    m->t = t;
    m->w = tokenizer_work_new(t);
    buf_init(&m->whole, PROMPT_MAX_BYTES);
    size_t without = 0;
    int rc = m->w ? count_text(m, "the the the", &without, e)
                  : err_set(e, ASSAY_ENOMEM, "out of memory");
    if (!rc)
        rc = cost_between(m, ",", without, &m->comma_cost, e);
    if (!rc)
        rc = cost_between(m, ".", without, &m->stop_cost, e);
    for (size_t i = 0; i < WORDS && !rc; i++) {
        char text[WORD_BYTES + 2];
        bool single = false;
        snprintf(text, sizeof text, " %.*s", WORD_BYTES - 1, words[i]);
        rc = cost_between(m, text, without, &m->cost[i], e);
        if (!rc)
            rc = is_single(m, words[i], &single, e);
        if (m->cost[i] == 1)
            m->cheap[m->ncheap++] = (uint16_t)i;
        if (single)
            m->single[m->nsingle++] = (uint16_t)i;
        capital(text + 1);
        if (!rc)
            rc = cost_between(m, text, without, &m->capital_cost[i], e);
    }
    if (!rc)
        rc = check_singles(m, e);
    if (rc)
        prompt_maker_free(m);
    else
        *out = m;
    return rc;
}

void prompt_maker_free(struct prompt_maker *m) {
    if (!m)
        return;
    tokenizer_work_free(m->w);
    buf_release(&m->whole);
    free(m);
}

size_t prompt_nwords(const struct prompt_maker *m) {
    return m->nsingle;
}

const char *prompt_word(const struct prompt_maker *m, size_t i) {
    return words[m->single[i]];
}

/* ---- surroundings ---- */

void prompt_around_nothing(struct prompt_around *a) {
    buf_init(&a->before, PROMPT_MAX_BYTES);
    buf_init(&a->after, PROMPT_MAX_BYTES);
    a->flags = TOKENIZER_ENCODE_TEMPLATE;
}

void prompt_around_release(struct prompt_around *a) {
    buf_release(&a->before);
    buf_release(&a->after);
}

int prompt_around_chat(struct prompt_around *a, const struct chat_template *t, const char *date,
                       struct err *e) {
    static const char here[] = "(the prompt)";
    struct chat_message m = {CHAT_USER, {here, sizeof here - 1}};
    prompt_around_nothing(a);
    a->flags = 0; /* the template writes the begin of text itself */
    int rc = chat_template_render(t, &m, 1, CHAT_RENDER_GENERATION, date, &a->before, e);
    const char *hole = rc ? NULL : strstr(a->before.p, here);
    if (!rc && !hole)
        rc = err_set(e, ASSAY_EINPUT, "the chat template of %s leaves the user's text out",
                     chat_template_name(t));
    if (!rc) {
        size_t at = (size_t)(hole - a->before.p), end = at + sizeof here - 1;
        buf_put(&a->after, a->before.p + end, a->before.n - end);
        a->before.n = at;
        rc = buf_check(&a->after, "a chat", e);
    }
    if (rc)
        prompt_around_release(a);
    return rc;
}

/* Ids of text with what is around it. */
static int count_whole(struct prompt_maker *m, const struct prompt_around *a, const char *text,
                       size_t n, uint32_t *ids, size_t cap, size_t *count, struct err *e) {
    if (!a->before.n && !a->after.n)
        return tokenizer_encode(m->t, m->w, text ? text : "", n, a->flags, ids, cap, count, e);
    buf_clear(&m->whole);
    buf_put(&m->whole, a->before.p, a->before.n);
    buf_put(&m->whole, text, n);
    buf_put(&m->whole, a->after.p, a->after.n);
    int rc = buf_check(&m->whole, "a prompt", e);
    return rc ? rc
              : tokenizer_encode(m->t, m->w, m->whole.p, m->whole.n, a->flags, ids, cap, count, e);
}

int prompt_overhead(struct prompt_maker *m, const struct prompt_around *a, size_t *tokens,
                    struct err *e) {
    *tokens = 0;
    for (size_t i = 0; i < m->nsingle; i++) {
        const char *w = words[m->single[i]];
        size_t n;
        int rc = count_whole(m, a, w, strlen(w), NULL, 0, &n, e);
        if (rc)
            return rc;
        if (i && n - 1 != *tokens)
            return err_set(e, ASSAY_EINPUT,
                           "what is around a prompt has %zu tokens with some words, %zu with '%s'",
                           *tokens, n - 1, w);
        *tokens = n - 1;
    }
    return 0;
}

/* ---- prompts ---- */

struct draft {
    struct prompt_maker *m;
    const struct prompt_around *a;
    struct rng rng;
    struct buf *text;
    size_t want, have; /* tokens; have: the sum of what was measured apart */
    uint32_t left;     /* words until the sentence ends */
};

static int count_draft(struct draft *d, size_t *n, struct err *e) {
    return count_whole(d->m, d->a, d->text->p, d->text->n, NULL, 0, n, e);
}

/* The first word: nothing is before it, so the whole is counted. */
static int first_word(struct draft *d, struct err *e) {
    size_t from = (size_t)rng_below(&d->rng, WORDS);
    int rc = 0;
    for (size_t i = 0; i < WORDS && !rc; i++) { /* one that fits */
        char w[WORD_BYTES];
        size_t n;
        snprintf(w, sizeof w, "%.*s", WORD_BYTES - 1, words[(from + i) % WORDS]);
        capital(w);
        rc = count_whole(d->m, d->a, w, strlen(w), NULL, 0, &n, e);
        if (!rc && n <= d->want) {
            buf_puts(d->text, w);
            d->have = n;
            return 0;
        }
    }
    return rc;
}

/* A word with what goes before it, or nothing when none fits any more. */
static bool next_word(struct draft *d) {
    const struct prompt_maker *m = d->m;
    size_t room = d->want - d->have, mark_cost = 0, i;
    const char *mark = "";
    bool upper = false;
    if (d->left == 0 && room > (size_t)m->stop_cost + 4) {
        mark = ".", mark_cost = m->stop_cost, upper = true;
        d->left = 5 + (uint32_t)rng_below(&d->rng, 12);
    } else if (d->left > 2 && rng_below(&d->rng, 12) == 0 && room > (size_t)m->comma_cost + 4)
        mark = ",", mark_cost = m->comma_cost;
    i = (size_t)rng_below(&d->rng, WORDS);
    if (mark_cost + (upper ? m->capital_cost[i] : m->cost[i]) > room || room < 8) {
        if (!m->ncheap)
            return false;
        i = m->cheap[rng_below(&d->rng, m->ncheap)];
        mark = "", mark_cost = 0, upper = false;
    }
    char w[WORD_BYTES];
    snprintf(w, sizeof w, "%.*s", WORD_BYTES - 1, words[i]);
    if (upper)
        capital(w);
    buf_printf(d->text, "%s %s", mark, w);
    d->have += mark_cost + (upper ? m->capital_cost[i] : m->cost[i]);
    d->left -= d->left > 0;
    return true;
}

static void drop_last(struct buf *text) {
    while (text->n && text->p[text->n - 1] != ' ')
        text->n--;
    text->n -= text->n > 0;
    text->p[text->n] = '\0';
}

/* Appends what brings the count nearer without going past. */
static int append_filler(struct draft *d, size_t have, bool *moved, struct err *e) {
    size_t at = d->text->n, n;
    *moved = false;
    for (size_t i = 0; i < FILLERS; i++) {
        if (!at && fillers[i][0] == ' ')
            continue;
        buf_puts(d->text, fillers[i]);
        int rc = count_draft(d, &n, e);
        if (rc)
            return rc;
        if (n > have && n <= d->want) {
            *moved = true;
            return 0;
        }
        d->text->n = at;
        if (d->text->p)
            d->text->p[at] = '\0';
    }
    return 0;
}

static int mend(struct draft *d, struct err *e) {
    size_t n = 0, dropped = 0;
    for (int i = 0; i < MENDS_MAX; i++) {
        int rc = count_draft(d, &n, e);
        bool moved = true;
        if (rc || n == d->want)
            return rc;
        if (n < d->want && (rc = append_filler(d, n, &moved, e)))
            return rc;
        if ((n > d->want || !moved) && d->text->n) {
            for (size_t k = 0; k <= dropped / 4 && d->text->n; k++) /* further back each time */
                drop_last(d->text);
            dropped++;
        } else if (n > d->want || !moved)
            break;
    }
    return err_set(e, ASSAY_EINPUT,
                   "no text of exactly %zu tokens was found in this vocabulary (%zu is near)",
                   d->want, n);
}

int prompt_make(struct prompt_maker *m, const struct prompt_around *a, uint64_t seed, size_t tokens,
                struct buf *text, uint32_t *ids, struct err *e) {
    struct draft d = {.m = m, .a = a, .text = text, .want = tokens};
    size_t least, n = 0;
    buf_clear(text);
    rng_seed(&d.rng, seed);
    int rc = count_whole(m, a, "", 0, NULL, 0, &least, e);
    if (rc)
        return rc;
    if (tokens < least)
        return err_set(e, ASSAY_EINPUT,
                       "a prompt of %zu tokens: expected at least %zu, what is around it", tokens,
                       least);
    d.left = 5 + (uint32_t)rng_below(&d.rng, 12);
    if (tokens > least && (rc = first_word(&d, e)))
        return rc;
    while (d.text->n && d.have < d.want && !text->failed && next_word(&d))
        ;
    if ((rc = buf_check(text, "a prompt", e)) || (rc = mend(&d, e)))
        return rc;
    rc = count_whole(m, a, text->p, text->n, ids, ids ? tokens : 0, &n, e);
    return rc || n == tokens ? rc : err_set(e, ASSAY_EINPUT, "a prompt does not count twice alike");
}
