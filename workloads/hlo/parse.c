/* Files and modules: the header, its tables, the computations, the file's map. */
#include "workloads/hlo/hlo_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct owned_file {
    struct hlo_file file;
    struct arena arena;
    void *map;
    size_t map_bytes;
};

static bool at_word(const struct parser *p, const char *word) {
    size_t n = strlen(word);
    return !strncmp(p->at, word, n) && !is(p->at[n], CH_NAME);
}

static bool parse_header(struct parser *p, struct hlo_module *m) {
    p->at += strlen("HloModule");
    if (!skip_space(p))
        return false;
    if (!scan_name(p, &m->name))
        return parse_expected(p, p->at, "the name of the module");
    if (!skip_space(p))
        return false;
    skip_char(p, ':');
    m->has_header = true;
    return parse_attrs(p, &p->module_attrs, NULL);
}

/* FileNames, FunctionNames, FileLocations, StackFrames: numbered strings or records. */
static bool parse_stack_tables(struct parser *p, struct str *tables) {
    static const char *const words[] = {"FileNames", "FunctionNames", "FileLocations",
                                        "StackFrames"};
    const char *start = p->at, *end = start;
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        if (!at_word(p, words[k]))
            continue;
        p->at += strlen(words[k]);
        end = p->at;
        while (skip_space(p) && is(*p->at, CH_DIGIT)) {
            int64_t v;
            if (!scan_int(p, &v) || !skip_space(p))
                return false;
            if (*p->at == '"'   ? !scan_string(p)
                : *p->at == '{' ? !scan_balanced(p)
                                : !parse_expected(p, p->at, "a string or a record"))
                return false;
            end = p->at;
        }
        if (p->rc)
            return false;
    }
    *tables = (struct str){start, (size_t)(end - start)};
    return true;
}

static void header_int(const struct hlo_module *m, enum hlo_key key, int64_t *v) {
    int64_t n;
    for (uint32_t i = 0; i < m->nattrs; i++)
        if (m->attrs[i].key == key &&
            hlo_int((struct str){m->text + m->attrs[i].at, m->attrs[i].n}, &n) && n > 0)
            *v = n;
}

static bool keep_module(struct parser *p, struct hlo_module *m) {
    if (!vec_keep(p, &p->module_attrs, &m->attrs) ||
        !vec_keep(p, &p->computations, &m->computations))
        return false;
    m->nattrs = (uint32_t)p->module_attrs.n;
    m->n = (uint32_t)p->computations.n;
    m->replicas = m->partitions = 1;
    header_int(m, HLO_KEY_REPLICA_COUNT, &m->replicas);
    header_int(m, HLO_KEY_NUM_PARTITIONS, &m->partitions);
    if (!m->has_header) {
        static const char prefix[] = "module_";
        struct str entry = m->computations[m->entry].name;
        char *name = parse_alloc(p, entry.n + sizeof prefix, 1);
        if (!name)
            return false;
        memcpy(name, prefix, sizeof prefix - 1);
        memcpy(name + sizeof prefix - 1, entry.p, entry.n);
        m->name = (struct str){name, entry.n + sizeof prefix - 1};
    }
    struct hlo_module *slot = vec_push(p, &p->modules);
    if (slot)
        *slot = *m;
    return slot;
}

/* From here to the end or a separator; blanks are skipped, something is there. */
static bool parse_module(struct parser *p) {
    struct hlo_module m = {.text = p->text};
    int64_t entry = -1;
    names_clear(&p->computations_by_name);
    p->computations.n = p->module_attrs.n = 0;
    if (at_word(p, "HloModule") && !parse_header(p, &m))
        return false;
    if (!skip_space(p) || !parse_stack_tables(p, &m.stack_tables))
        return false;
    for (;;) {
        if (!skip_space(p))
            return false;
        if (p->at >= p->end || at_separator(p, p->at))
            break;
        if (at_word(p, "HloModule"))
            return parse_fail(p, p->at,
                              "expected a computation, found a trailing module: part "
                              "modules by a line '// -----'");
        bool is_entry = at_word(p, "ENTRY");
        const char *at = p->at;
        if (is_entry) {
            if (entry >= 0)
                return parse_fail(p, at, "expected one ENTRY computation, found a second");
            entry = (int64_t)p->computations.n;
            p->at += strlen("ENTRY");
            if (!skip_space(p))
                return false;
        }
        if (!parse_computation(p, is_entry))
            return false;
    }
    if (!p->computations.n)
        return parse_expected(p, p->at, "a computation");
    m.entry = entry < 0 ? (uint32_t)p->computations.n - 1 : (uint32_t)entry;
    return keep_module(p, &m);
}

static bool parse_modules(struct parser *p) {
    for (;;) {
        if (!skip_space(p))
            return false;
        if (at_separator(p, p->at)) {
            const char *q = memchr(p->at, '\n', (size_t)(p->end - p->at));
            p->at = q ? q : p->end;
            continue;
        }
        if (p->at >= p->end)
            return p->modules.n || parse_expected(p, p->at, "'HloModule' or a computation");
        if (!parse_module(p))
            return false;
    }
}

static void parser_init(struct parser *p) {
    dict_init(&p->opcodes, hlo_opcode_words, HLO_OPCODE_COUNT - 1);
    dict_init(&p->keys, hlo_key_words, hlo_nkey_words);
    dict_init(&p->dtypes, hlo_dtype_words, hlo_ndtype_words);
    p->instrs.item = sizeof(struct hlo_instr);
    p->operands.item = p->pending.item = sizeof(uint32_t);
    p->attrs.item = p->module_attrs.item = sizeof(struct hlo_attr);
    p->callees.item = sizeof(struct hlo_callee);
    p->computations.item = sizeof(struct hlo_computation);
    p->modules.item = sizeof(struct hlo_module);
    p->parameters.item = 1;
}

static void parser_release(struct parser *p) {
    struct vec *const vecs[] = {&p->instrs,       &p->operands,     &p->attrs,
                                &p->callees,      &p->pending,      &p->parameters,
                                &p->computations, &p->module_attrs, &p->modules};
    for (size_t i = 0; i < sizeof vecs / sizeof *vecs; i++)
        free(vecs[i]->p);
    free(p->local.slots);
    free(p->computations_by_name.slots);
    free(p->shapes);
}

/* Fills f->file from f->file.text. */
static int parse_file(struct owned_file *f, struct err *e) {
    struct parser *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    p->text = p->at = f->file.text;
    p->end = p->text + f->file.n;
    p->file_name = f->file.name;
    p->arena = &f->arena;
    p->e = e;
    parser_init(p);
    if (parse_modules(p) && vec_keep(p, &p->modules, &f->file.modules)) {
        f->file.nmodules = p->modules.n;
        f->file.memory_bytes = p->arena_bytes + p->scratch_bytes;
    }
    int rc = p->rc;
    parser_release(p);
    free(p);
    return rc;
}

static int finish(struct owned_file *f, const char *name, struct hlo_file **out, struct err *e) {
    f->file.name = arena_strdup(&f->arena, name);
    int rc = f->file.name ? parse_file(f, e) : err_set(e, ASSAY_ENOMEM, "out of memory");
    if (rc)
        hlo_free(&f->file);
    else
        *out = &f->file;
    return rc;
}

int hlo_parse(const char *text, size_t n, const char *name, struct hlo_file **out, struct err *e) {
    if (n >= HLO_FILE_MAX_BYTES)
        return err_set(e, ASSAY_EINPUT, "%s: expected fewer than 4 GiB of text", name);
    struct owned_file *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    f->file.text = text;
    f->file.n = n;
    return finish(f, name, out, e);
}

/* Maps the file over memory that is a byte longer, so that a zero follows it. */
static int map_file(struct owned_file *f, int fd, size_t n, const char *path, struct err *e) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (n / page + 1) * page;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return err_errno(e, ASSAY_ENOMEM, errno, "cannot map '%s'", path);
    f->map = map;
    f->map_bytes = bytes;
    if (n && mmap(map, n, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED)
        return err_errno(e, ASSAY_EENV, errno, "cannot map '%s'", path);
    f->file.text = map;
    f->file.n = n;
    return 0;
}

int hlo_load(const char *path, struct hlo_file **out, struct err *e) {
    struct stat st;
    struct owned_file *f = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;
    if (fd < 0)
        return err_errno(e, ASSAY_EINPUT, errno, "cannot open '%s'", path);
    if (fstat(fd, &st))
        rc = err_errno(e, ASSAY_EINPUT, errno, "cannot read '%s'", path);
    else if (!S_ISREG(st.st_mode))
        rc = err_set(e, ASSAY_EINPUT, "cannot read '%s': expected a regular file", path);
    else if ((uintmax_t)st.st_size >= HLO_FILE_MAX_BYTES)
        rc = err_set(e, ASSAY_EINPUT, "%s: expected fewer than 4 GiB of text", path);
    else if (!(f = calloc(1, sizeof *f)))
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    else
        rc = map_file(f, fd, (size_t)st.st_size, path, e);
    close(fd);
    if (rc) {
        hlo_free(f ? &f->file : NULL);
        return rc;
    }
    return finish(f, path, out, e);
}

void hlo_free(struct hlo_file *file) {
    if (!file)
        return;
    struct owned_file *f = (struct owned_file *)file; /* its first member */
    if (f->map)
        munmap(f->map, f->map_bytes);
    arena_release(&f->arena);
    free(f);
}
