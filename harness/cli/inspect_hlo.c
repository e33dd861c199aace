/* Facts of a compiler's dump: what is in each module, what it computes, moves and sends, and what
 * nobody knows of it. */
#include "harness/cli/inspect_internal.h"

#include "workloads/hlo/facts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOP = 10, NAME_MAX_BYTES = 160 };

/* Names of the text may hold any byte: JSON takes UTF-8. */
static json_t *text_of(struct str s) {
    json_t *v = json_stringn(s.p, s.n < NAME_MAX_BYTES ? s.n : NAME_MAX_BYTES);
    char plain[NAME_MAX_BYTES];
    size_t n = 0;
    if (v)
        return v;
    for (; n < s.n && n < NAME_MAX_BYTES; n++)
        plain[n] = (char)((unsigned char)s.p[n] < 0x80 ? s.p[n] : '?');
    return json_stringn(plain, n);
}

static int set(json_t *o, const char *name, json_t *v) {
    return json_object_set_new(o, name, v);
}

static int set_int(json_t *o, const char *name, int64_t v) {
    return set(o, name, json_integer(v));
}

/* Of a rule those properties that it has. */
static json_t *cost_json(const struct hlo_cost *c, int properties) {
    json_t *o = json_object();
    int bad = !o;
    for (int p = 0; p < properties; p++)
        bad |= set_int(o, hlo_property_names[p], c->v[p]);
    if (bad) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *collectives_json(const struct hlo_facts *f) {
    json_t *all = json_object();
    for (size_t k = 0; k < f->ncollectives; k++) {
        const struct hlo_collective_fact *c = &f->collectives[k];
        set(all, hlo_opcode_name(c->op),
            json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "count", (json_int_t)c->count, "operand_bytes",
                      (json_int_t)c->operand_bytes, "largest_group", (json_int_t)c->max_group,
                      "executed", (json_int_t)c->executed, "payload_bytes",
                      (json_int_t)c->executed_payload_bytes, "sent_bytes",
                      (json_int_t)c->executed_sent_bytes));
    }
    return all;
}

static json_t *names_json(const struct hlo_name_fact *list, size_t n, const char *what) {
    json_t *all = json_array();
    for (size_t k = 0; k < n; k++) {
        json_t *item = json_object();
        set(item, what, text_of(list[k].name));
        set_int(item, "count", list[k].count);
        set_int(item, "executed", list[k].executed);
        set_int(item, "without_price", list[k].unknown);
        set(item, "price", list[k].source ? json_string(list[k].source) : json_null());
        json_array_append_new(all, item);
    }
    return all;
}

/* Of a long list its beginning: programs have few loops of which each count matters. */
static json_t *loops_json(const struct hlo_facts *f) {
    enum { SHOWN = 64 };
    json_t *trips = json_array();
    for (size_t k = 0; k < f->ntrips && k < SHOWN; k++)
        json_array_append_new(trips, json_integer(f->trips[k]));
    return json_pack("{s:I,s:o,s:I}", "whiles", (json_int_t)f->loops, "trips", trips,
                     "unknown_trips", (json_int_t)f->unknown_trips);
}

struct count {
    enum hlo_opcode op;
    int64_t n;
};

static int by_count(const void *a, const void *b) {
    const struct count *x = a, *y = b;
    if (x->n != y->n)
        return (x->n < y->n) - (x->n > y->n);
    return (x->op > y->op) - (x->op < y->op);
}

static json_t *opcodes_json(const struct hlo_facts *f) {
    struct count counts[HLO_OPCODE_COUNT];
    json_t *all = json_object();
    for (int op = 0; op < HLO_OPCODE_COUNT; op++)
        counts[op] = (struct count){(enum hlo_opcode)op, f->opcodes[op]};
    qsort(counts, HLO_OPCODE_COUNT, sizeof *counts, by_count);
    for (int k = 0; k < HLO_OPCODE_COUNT && counts[k].n; k++)
        set_int(all, hlo_opcode_name(counts[k].op), counts[k].n);
    return all;
}

static int top_json(const struct hlo_analysis *a, enum hlo_property by, json_t **out,
                    struct err *e) {
    struct hlo_top top[TOP];
    size_t n;
    int rc = hlo_top(a, by, top, TOP, &n, e);
    if (rc)
        return rc;
    *out = json_array();
    for (size_t k = 0; k < n; k++) {
        const struct hlo_computation *c = &a->m->computations[top[k].computation];
        const struct hlo_instr *i = &c->instrs[top[k].instr];
        json_t *item = json_object();
        set(item, "instruction", text_of(hlo_instr_name(a->m, i)));
        set(item, "opcode", text_of(hlo_instr_opcode(a->m, c, i)));
        set(item, "computation", text_of(c->name));
        set_int(item, "executed", top[k].executed);
        set_int(item, hlo_property_names[by], top[k].cost.v[by]);
        json_array_append_new(*out, item);
    }
    return 0;
}

static bool is_scheduled(const struct hlo_module *m) {
    for (uint32_t k = 0; k < m->nattrs; k++)
        if (m->attrs[k].key == HLO_KEY_IS_SCHEDULED)
            return m->attrs[k].n == 4 && !memcmp(m->text + m->attrs[k].at, "true", 4);
    return false;
}

static int module_json(const struct hlo_module *m, json_t **out, struct err *e) {
    struct hlo_analysis *a = NULL;
    struct hlo_facts f;
    struct arena arena = {0};
    json_t *o = *out = json_object(), *flops = NULL, *bytes = NULL;
    int rc = hlo_analyse(m, NULL, &a, e);
    if (!rc)
        rc = hlo_facts(a, &arena, &f, e);
    if (!rc)
        rc = top_json(a, HLO_FLOPS, &flops, e);
    if (!rc)
        rc = top_json(a, HLO_BYTES, &bytes, e);
    if (rc)
        goto out;
    bool whole = !f.executed.v[HLO_UNKNOWN_OPS] && !f.unknown_trips;
    int bad = set(o, "module", text_of(m->name));
    bad |= set(o, "entry", text_of(m->computations[m->entry].name));
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {
        {"computations", f.computations},
        {"instructions", f.instructions},
        {"entry_instructions", f.entry_instructions},
        {"entry_parameters", f.entry_parameters},
        {"entry_parameter_bytes", f.entry_parameter_bytes},
        {"entry_result_bytes", f.entry_result_bytes},
        {"alias_entries", f.alias_entries},
        {"instructions_with_sharding", f.with_sharding},
        {"replicas", m->replicas},
        {"partitions", m->partitions},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        bad |= set_int(o, rows[k].name, rows[k].value);
    bad |= set(o, "scheduled", json_boolean(is_scheduled(m)));
    bad |= set(o, "shapes", json_string(hlo_scope_name(f.scope)));
    bad |= set(o, "figures", json_string(whole ? "complete" : "lower bound"));
    bad |= set(o, "executed", cost_json(&f.executed, HLO_PROPERTIES));
    bad |= set(o, "each_instruction_once",
               json_pack("{s:I,s:I}", "dot_flops", (json_int_t)f.static_dot_flops,
                         "convolution_flops", (json_int_t)f.static_convolution_flops));
    bad |= set(o, "xla_cost_analysis", cost_json(&f.xla, HLO_BYTES + 1));
    bad |= set(o, "collectives", collectives_json(&f));
    bad |= set(o, "loops", loops_json(&f));
    bad |= set(o, "custom_calls", names_json(f.targets, f.ntargets, "target"));
    bad |= set(o, "unknown_opcodes", names_json(f.unknown_opcodes, f.nunknown_opcodes, "opcode"));
    bad |= set(o, "opcodes", opcodes_json(&f));
    bad |= set(o, "top_by_flops", flops);
    bad |= set(o, "top_by_bytes", bytes);
    flops = bytes = NULL;
    if (bad)
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
out:
    json_decref(flops);
    json_decref(bytes);
    hlo_analysis_free(a);
    arena_release(&arena);
    return rc;
}

int inspect_hlo(const char *name, json_t *facts, struct err *e) {
    struct hlo_file *f = NULL;
    json_t *modules = json_array();
    int rc = hlo_load(name, &f, e), bad = 0;
    for (size_t k = 0; !rc && k < f->nmodules; k++) {
        json_t *m = NULL;
        rc = module_json(&f->modules[k], &m, e);
        if (rc)
            err_wrap(e, "%s", name);
        bad |= json_array_append_new(modules, m);
    }
    if (!rc) {
        bad |= set_int(facts, "text_bytes", (int64_t)f->n);
        bad |= set(facts, "modules", json_incref(modules));
        if (bad)
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    json_decref(modules);
    hlo_free(f);
    return rc;
}

/* By its name; else by its first word, after comments. */
bool inspect_is_hlo(const char *path) {
    size_t n = strlen(path);
    if (n > 4 && !strcmp(path + n - 4, ".hlo"))
        return true;
    char head[8192];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, head, sizeof head - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return false;
    head[got] = 0;
    const char *p = head;
    for (;;) {
        p += strspn(p, " \t\r\n");
        const char *end = !strncmp(p, "//", 2)   ? strchr(p, '\n')
                          : !strncmp(p, "/*", 2) ? strstr(p + 2, "*/")
                                                 : NULL;
        if (!end)
            return !strncmp(p, "HloModule ", 10);
        p = end + (*end == '*' ? 2 : 1);
    }
}
