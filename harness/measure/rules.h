/* Rule packs: versioned data (schemas/rules/NAME.json) that say when a run is valid. Code knows kinds
 * of rules, never a benchmark's name. A kind is one row of a table in rules.c. */
#ifndef HARNESS_MEASURE_RULES_H
#define HARNESS_MEASURE_RULES_H

#include "harness/core/err.h"
#include "harness/measure/metrics.h"

#include <jansson.h>
#include <stdbool.h>

enum {
    RULES_PACK_MAX = 64,            /* rules of a pack */
    RULES_MAX = RULES_PACK_MAX + 1, /* verdicts of a run */
};

/* A run is valid when every verdict is ok. want and got are for people, in human units ("600 s",
 * "612.4 s"); a rule whose figure is missing is not ok and says why. */
struct verdict {
    char rule[48];       /* the rule's id in the pack */
    bool ok;
    char want[96], got[128];
    char reason_code[48];/* machine code for invalidReasons when not ok: "min-duration", … */
};

struct rule_pack; /* parsed */

/* name: shipped pack or path (contains '/' or ends in .json). Malformed packs are ASSAY_EINPUT with
 * file and JSON pointer, unknown names ASSAY_EUSAGE. Format: schemas/rule-pack.json. */
int rules_load(const char *name, struct rule_pack **out, struct err *e) MUST_USE;
int rules_from_json(const json_t *json, const char *label, struct rule_pack **out,
                    struct err *e) MUST_USE;
void rules_free(struct rule_pack *p);
/* The kinds of rules: name, what it asks, for docs and `inspect --list`; NULL past the last. */
const char *rules_kind(int i, const char **help);
const char *rules_name(const struct rule_pack *p);
const char *rules_version(const struct rule_pack *p);
const json_t *rules_json(const struct rule_pack *p); /* borrowed; digested into the record */

/* Facts beside the metrics that rules may ask about. */
struct rules_facts {
    bool interrupted;
    bool clock_stepped;
    bool real_clock;
    bool no_system; /* result class none: what was measured is the client itself */
    uint64_t seed;
    int64_t max_concurrency; /* requests in flight that the load pattern allows; 0 = unbounded */
};
/* One verdict a rule, in the pack's order; returns how many (at most RULES_MAX). When all hold, one more
 * follows if the run was interrupted or nothing completed: such a run is never valid. */
int rules_evaluate(const struct rule_pack *p, const struct metrics *m, const struct rules_facts *f,
                   struct verdict *out);

#endif
