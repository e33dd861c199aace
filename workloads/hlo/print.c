/* HLO text again. What was a slice stays one; names, shapes, opcodes and structure come from the
 * nodes, so that a reader's mistake shows when the text is read back. */
#include "workloads/hlo/hlo.h"

static void put(struct buf *b, struct str s) {
    buf_put(b, s.p, s.n);
}

static void print_attr(const char *text, const struct hlo_attr *a, struct buf *out) {
    buf_puts(out, ", ");
    buf_put(out, text + a->key_at, a->key_n);
    buf_putc(out, '=');
    buf_put(out, text + a->at, a->n);
}

static void print_op(const struct hlo_module *m, const struct hlo_computation *c,
                     const struct hlo_instr *i, struct buf *out);

/* A name, or the instruction that has none. */
static void print_operand(const struct hlo_module *m, const struct hlo_computation *c,
                          const struct hlo_instr *i, struct buf *out) {
    if (!(i->flags & HLO_INSTR_ANONYMOUS)) {
        buf_putc(out, '%');
        put(out, hlo_instr_name(m, i));
    } else if (i->opcode == HLO_GET_TUPLE_ELEMENT) {
        print_operand(m, c, hlo_operand(c, i, 0), out);
        buf_printf(out, "#%lld", (long long)i->value);
    } else {
        print_op(m, c, i, out);
    }
}

/* shape opcode(operands) */
static void print_op(const struct hlo_module *m, const struct hlo_computation *c,
                     const struct hlo_instr *i, struct buf *out) {
    struct str literal;
    if (!(i->flags & HLO_INSTR_SHAPELESS)) {
        put(out, i->shape->text);
        buf_putc(out, ' ');
    }
    put(out, hlo_instr_opcode(m, c, i));
    buf_putc(out, '(');
    if (i->opcode == HLO_PARAMETER)
        buf_printf(out, "%lld", (long long)i->value);
    else if (hlo_attr(m, c, i, HLO_KEY_LITERAL_TEXT, &literal))
        put(out, literal);
    for (uint32_t k = 0; k < i->noperands; k++) {
        if (k)
            buf_puts(out, ", ");
        print_operand(m, c, hlo_operand(c, i, k), out);
    }
    buf_putc(out, ')');
}

static void print_instr(const struct hlo_module *m, const struct hlo_computation *c,
                        const struct hlo_instr *i, struct buf *out) {
    buf_puts(out, i == &c->instrs[c->root] ? "  ROOT %" : "  %");
    put(out, hlo_instr_name(m, i));
    buf_puts(out, " = ");
    print_op(m, c, i, out);
    for (uint32_t k = 0; k < i->nattrs; k++)
        if (c->attrs[i->attrs + k].key_n)
            print_attr(m->text, &c->attrs[i->attrs + k], out);
    buf_putc(out, '\n');
}

static void print_computation(const struct hlo_module *m, uint32_t index, struct buf *out) {
    const struct hlo_computation *c = &m->computations[index];
    buf_puts(out, index == m->entry ? "ENTRY %" : "%");
    put(out, c->name);
    if (c->signature.n) {
        buf_putc(out, ' ');
        put(out, c->signature);
    }
    buf_puts(out, " {\n");
    for (uint32_t k = 0; k < c->n; k++)
        if (!(c->instrs[k].flags & HLO_INSTR_ANONYMOUS))
            print_instr(m, c, &c->instrs[k], out);
    buf_putc(out, '}');
    if (c->thread.n) {
        buf_puts(out, ", execution_thread=");
        put(out, c->thread);
    }
    buf_puts(out, "\n\n");
}

void hlo_print(const struct hlo_module *m, struct buf *out) {
    if (m->has_header) {
        buf_puts(out, "HloModule ");
        put(out, m->name);
        for (uint32_t k = 0; k < m->nattrs; k++)
            print_attr(m->text, &m->attrs[k], out);
        buf_puts(out, "\n\n");
    }
    if (m->stack_tables.n) {
        put(out, m->stack_tables);
        buf_puts(out, "\n\n");
    }
    for (uint32_t k = 0; k < m->n; k++)
        print_computation(m, k, out);
}
