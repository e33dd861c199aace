/* Ed25519 keys: RFC 8032 test 1, strictness against keys that other libraries take, files. */
#include "results/key.h"
#include "tests/results/vectors.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/assay-key-XXXXXX";

static void setup(void) {
    cr_assert(mkdtemp(dir) != NULL);
    umask(022);
}
static void teardown(void) {
    char cmd[64];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    cr_assert(zero(int, system(cmd)));
}
TestSuite(results_key, .init = setup, .fini = teardown, .timeout = 30);

static const char *in_dir(const char *name) {
    static char path[4][256];
    static int i;
    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static void put(const char *path, const char *text, mode_t mode) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    fchmod(fd, mode);
    close(fd);
}

/* Golden: RFC 8032 section 7.1, test 1. */
#define RFC_SEED "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
#define RFC_PUBLIC "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
#define RFC_SIG                                                                                    \
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9" \
    "b46bd25bf5f0595bbe24655141438e7a100b"

static struct secret_key *seeded(const char *hex) {
    unsigned char seed[32];
    struct secret_key *k;
    struct err e = {0};
    vec_hex32(hex, seed);
    cr_assert(zero(int, secret_key_from_seed(seed, &k, &e)), "%s", e.text);
    return k;
}

Test(results_key, rfc8032_test_1) {
    struct secret_key *k = seeded(RFC_SEED);
    unsigned char sig[64];
    char hex[129];
    cr_assert(eq(str, hex32(secret_key_public(k)->raw), RFC_PUBLIC));
    key_sign(k, "", 0, sig);
    hex_encode(sig, 64, hex);
    cr_assert(eq(str, hex, RFC_SIG));
    cr_assert(key_verify(secret_key_public(k), "", 0, sig));
    cr_assert(not(key_verify(secret_key_public(k), "x", 1, sig)));
    for (int i = 0; i < 64; i++) {
        sig[i] ^= 1;
        cr_assert(not(key_verify(secret_key_public(k), "", 0, sig)), "bit in byte %d", i);
        sig[i] ^= 1;
    }
    secret_key_free(k);
}

/* The eight points of small order, canonical and not (from the curve's definition: orders 1, 2, 4,
 * 8), a value that is not on the curve, and y = p + 1 as a non-canonical 1. */
Test(results_key, small_order_and_non_canonical_keys_are_refused) {
    static const char *const wrong[] = {
        "0100000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "0100000000000000000000000000000000000000000000000000000000000080",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "0200000000000000000000000000000000000000000000000000000000000000",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        unsigned char raw[32];
        struct public_key k;
        struct err e = {0};
        vec_hex32(wrong[i], raw);
        cr_assert(eq(int, public_key_from_raw(raw, &k, &e), ASSAY_EINPUT), "%s", wrong[i]);
    }
}

Test(results_key, pem_round_trip) {
    struct secret_key *k = seeded(RFC_SEED);
    struct public_key back;
    struct err e = {0};
    char pem[160];
    public_key_to_pem(secret_key_public(k), pem);
    cr_assert(zero(int, public_key_from_pem(pem, strlen(pem), "k", &back, &e)), "%s", e.text);
    cr_assert(eq(str, back.keyid, secret_key_public(k)->keyid));
    cr_assert(eq(sz, strlen(back.keyid), KEYID_BYTES - 1));
    secret_key_free(k);
}

Test(results_key, bad_pem_says_what_is_wrong) {
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"", "expected '-----BEGIN PUBLIC KEY-----'"},
        {"-----BEGIN RSA PUBLIC KEY-----\nAAAA\n", "expected '-----BEGIN PUBLIC KEY-----'"},
        {"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2Vw\n", "expected '-----END PUBLIC KEY-----'"},
        {"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2Vw\n-----END PUBLIC KEY-----\n", "44 bytes"},
        {"-----BEGIN PUBLIC KEY-----\nM!owBQYDK2Vw\n-----END PUBLIC KEY-----\n", "base64"},
        /* an X25519 key (OID 1.3.101.110) */
        {"-----BEGIN PUBLIC "
         "KEY-----\nMCowBQYDK2VuAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
         "-----END PUBLIC KEY-----\n",
         "not an Ed25519 key"},
        {"-----BEGIN PUBLIC "
         "KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
         "-----END PUBLIC KEY-----\nmore",
         "unexpected text"},
        {"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== x", "not an ssh-ed25519"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct public_key k;
        struct err e = {0};
        cr_assert(eq(int,
                     public_key_from_pem(wrong[i].text, strlen(wrong[i].text), "f.pem", &k, &e),
                     ASSAY_EINPUT),
                  "%s", wrong[i].text);
        cr_assert(strstr(e.text, wrong[i].says) && strstr(e.text, "f.pem"), "%s", e.text);
    }
}

Test(results_key, created_key_is_private_and_loads_again) {
    struct secret_key *a, *b;
    struct public_key p;
    struct err e = {0};
    struct stat st;
    const char *path = in_dir("k.pem");
    cr_assert(zero(int, secret_key_create(path, &a, &e)), "%s", e.text);
    cr_assert(zero(int, stat(path, &st)));
    cr_assert(eq(int, (int)(st.st_mode & 07777), 0600));
    cr_assert(zero(int, secret_key_load(path, &b, &e)), "%s", e.text);
    cr_assert(zero(int, public_key_load(in_dir("k.pem.pub"), &p, &e)), "%s", e.text);
    cr_assert(eq(str, secret_key_public(a)->keyid, secret_key_public(b)->keyid));
    cr_assert(eq(str, secret_key_public(a)->keyid, p.keyid));
    unsigned char sig[64];
    key_sign(b, "m", 1, sig);
    cr_assert(key_verify(&p, "m", 1, sig));
    secret_key_free(b);
    cr_assert(eq(int, secret_key_create(path, &b, &e), ASSAY_EUSAGE), "never overwritten");
    cr_assert(b == NULL);
    secret_key_free(a);
    /* nothing temporary stays behind */
    char cmd[128];
    snprintf(cmd, sizeof cmd, "test $(ls -A '%s' | wc -l) = 2", dir);
    cr_assert(zero(int, system(cmd)));
}

Test(results_key, openssl_reads_our_key_and_we_read_its) {
    if (system("command -v openssl >/dev/null 2>&1"))
        cr_skip_test("no openssl command");
    char cmd[512];
    struct secret_key *k;
    struct err e = {0};
    snprintf(cmd, sizeof cmd,
             "umask 077; openssl genpkey -algorithm ed25519 -out %s/o.pem 2>/dev/null", dir);
    cr_assert(zero(int, system(cmd)));
    cr_assert(zero(int, secret_key_load(in_dir("o.pem"), &k, &e)), "%s", e.text);
    char pem[160];
    public_key_to_pem(secret_key_public(k), pem);
    put(in_dir("ours.pub"), pem, 0644);
    secret_key_free(k);
    cr_assert(zero(int, secret_key_create(in_dir("n.pem"), &k, &e)), "%s", e.text);
    unsigned char sig[64];
    key_sign(k, "message", 7, sig);
    int fd = open(in_dir("sig"), O_WRONLY | O_CREAT, 0600);
    cr_assert(write(fd, sig, 64) == 64);
    close(fd);
    put(in_dir("msg"), "message", 0600);
    snprintf(
        cmd, sizeof cmd,
        "cd %s && openssl pkey -in o.pem -pubout | cmp -s - ours.pub && "
        "openssl pkey -in n.pem -pubout | cmp -s - n.pem.pub && "
        "openssl pkeyutl -verify -pubin -inkey n.pem.pub -rawin -in msg -sigfile sig >/dev/null",
        dir);
    cr_assert(zero(int, system(cmd)));
    secret_key_free(k);
}

Test(results_key, files_others_can_read_are_refused) {
    struct secret_key *k;
    struct err e = {0};
    static const mode_t modes[] = {0640, 0604, 0660, 0602, 0610};
    cr_assert(zero(int, secret_key_create(in_dir("k.pem"), &k, &e)));
    secret_key_free(k);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        cr_assert(zero(int, chmod(in_dir("k.pem"), modes[i])));
        cr_assert(eq(int, secret_key_load(in_dir("k.pem"), &k, &e), ASSAY_EENV));
        cr_assert(strstr(e.text, "chmod 600") && k == NULL, "%s", e.text);
    }
    cr_assert(zero(int, chmod(in_dir("k.pem"), 0400)));
    cr_assert(zero(int, secret_key_load(in_dir("k.pem"), &k, &e)), "%s", e.text);
    secret_key_free(k);
    if (geteuid() == 0) {
        cr_assert(zero(int, chown(in_dir("k.pem"), 12345, (gid_t)-1)));
        cr_assert(eq(int, secret_key_load(in_dir("k.pem"), &k, &e), ASSAY_EENV));
        cr_assert(strstr(e.text, "user 12345") != NULL, "%s", e.text);
    }
}

Test(results_key, unreadable_keys_are_environment_errors_and_malformed_ones_input_errors) {
    struct secret_key *k;
    struct err e = {0};
    cr_assert(eq(int, secret_key_load(in_dir("absent"), &k, &e), ASSAY_EENV));
    cr_assert(eq(int, secret_key_load(dir, &k, &e), ASSAY_EENV), "a directory");
    put(in_dir("bad"), "not a key", 0600);
    cr_assert(eq(int, secret_key_load(in_dir("bad"), &k, &e), ASSAY_EINPUT));
    put(in_dir("enc"), "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n", 0600);
    cr_assert(eq(int, secret_key_load(in_dir("enc"), &k, &e), ASSAY_EINPUT));
    cr_assert(strstr(e.text, "encrypted") != NULL, "%s", e.text);
    char big[5000];
    memset(big, 'A', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    put(in_dir("big"), big, 0600);
    cr_assert(eq(int, secret_key_load(in_dir("big"), &k, &e), ASSAY_EINPUT));
    cr_assert(eq(int, secret_key_create("/nonexistent/k.pem", &k, &e), ASSAY_EENV));
}

Test(results_key, runner_key_is_made_on_first_use) {
    struct secret_key *a, *b;
    struct err e = {0};
    struct stat st;
    bool created;
    char path[512];
    setenv("XDG_DATA_HOME", in_dir("data"), 1);
    cr_assert(zero(int, runner_key_load(NULL, &a, &created, path, sizeof path, &e)), "%s", e.text);
    cr_assert(created);
    cr_assert(eq(str, path, in_dir("data/assay/keys/runner.pem")));
    cr_assert(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600);
    cr_assert(stat(in_dir("data/assay/keys"), &st) == 0 && (st.st_mode & 07777) == 0700);
    cr_assert(zero(int, runner_key_load(NULL, &b, &created, path, sizeof path, &e)), "%s", e.text);
    cr_assert(not(created));
    cr_assert(eq(str, secret_key_public(a)->keyid, secret_key_public(b)->keyid));
    secret_key_free(a);
    secret_key_free(b);
    cr_assert(
        eq(int, runner_key_load(in_dir("other"), &a, &created, path, sizeof path, &e), ASSAY_EENV),
        "a named key is never made");
    setenv("XDG_DATA_HOME", "relative", 1);
    setenv("HOME", in_dir("home"), 1);
    cr_assert(zero(int, runner_key_load(NULL, &a, &created, path, sizeof path, &e)), "%s", e.text);
    cr_assert(eq(str, path, in_dir("home/.local/share/assay/keys/runner.pem")));
    secret_key_free(a);
    /* the public half without its secret: somebody lost a key; do not silently make another */
    cr_assert(zero(int, unlink(path)));
    cr_assert(eq(int, runner_key_load(NULL, &a, &created, path, sizeof path, &e), ASSAY_EENV));
    cr_assert(strstr(e.text, ".pub") != NULL, "%s", e.text);
}

Test(results_key, racing_processes_end_with_one_key, .timeout = 60) {
    enum { N = 8, ROUNDS = 10 };
    for (int round = 0; round < ROUNDS; round++) {
        char name[32];
        int go[2], out[2];
        snprintf(name, sizeof name, "race%d", round);
        setenv("XDG_DATA_HOME", in_dir(name), 1);
        cr_assert(pipe(go) == 0 && pipe(out) == 0);
        pid_t pid[N];
        for (int i = 0; i < N; i++) {
            pid[i] = fork();
            if (pid[i] == 0) {
                char c, path[512], line[128];
                struct secret_key *k;
                struct err e = {0};
                bool created = false;
                close(go[1]);
                (void)!read(go[0], &c, 1); /* all start when the parent closes its end */
                int rc = runner_key_load(NULL, &k, &created, path, sizeof path, &e);
                int n = snprintf(line, sizeof line, "%d%d%-72s", rc != 0, created,
                                 rc ? "failed" : secret_key_public(k)->keyid);
                (void)!write(out[1], line, (size_t)n);
                _exit(0);
            }
        }
        close(go[0]);
        close(go[1]);
        close(out[1]);
        char line[N][75] = {{0}};
        int created = 0;
        for (int i = 0; i < N; i++) {
            cr_assert(read(out[0], line[i], 74) == 74);
            cr_assert(line[i][0] == '0', "%s", line[i]);
            created += line[i][1] == '1';
            cr_assert(eq(str, line[i] + 2, line[0] + 2), "one key for all");
        }
        close(out[0]);
        for (int i = 0; i < N; i++)
            waitpid(pid[i], NULL, 0);
        cr_assert(eq(int, created, 1));
    }
}

/* ---- the published vectors ---- */

Test(results_key, vectors_keys) {
    json_t *keys = vectors_get("keys"), *v;
    const char *name;
    cr_assert(eq(sz, json_object_size(keys), 4));
    json_object_foreach(keys, name, v) {
        struct err e = {0};
        struct secret_key *s = seeded(vec_str(v, "seed")), *file;
        struct public_key p;
        char pem[160];
        cr_assert(eq(str, hex32(secret_key_public(s)->raw), vec_str(v, "public_raw")));
        cr_assert(eq(str, secret_key_public(s)->keyid, vec_str(v, "keyid")));
        public_key_to_pem(secret_key_public(s), pem);
        cr_assert(eq(str, pem, vec_str(v, "public_spki_pem")));
        const char *spki = vec_str(v, "public_spki_pem");
        cr_assert(zero(int, public_key_from_pem(spki, strlen(spki), name, &p, &e)), "%s", e.text);
        cr_assert(eq(str, p.keyid, vec_str(v, "keyid")));
        put(in_dir(name), vec_str(v, "private_pkcs8_pem"), 0600);
        cr_assert(zero(int, secret_key_load(in_dir(name), &file, &e)), "%s", e.text);
        cr_assert(eq(str, secret_key_public(file)->keyid, vec_str(v, "keyid")));
        secret_key_free(file);
        secret_key_free(s);
    }
}

Test(results_key, vectors_rfc8032) {
    json_t *v = vectors_get("rfc8032_test1");
    struct secret_key *s = seeded(vec_str(v, "seed"));
    unsigned char sig[64];
    char hex[129];
    key_sign(s, vec_str(v, "message"), strlen(vec_str(v, "message")), sig);
    hex_encode(sig, 64, hex);
    cr_assert(eq(str, hex, vec_str(v, "signature")));
    secret_key_free(s);
}

Test(results_key, vectors_ed25519_strictness) {
    json_t *list = vectors_get("ed25519_strictness"), *v;
    size_t i, n;
    json_array_foreach(list, i, v) {
        struct public_key k = {0};
        struct err e = {0};
        unsigned char *sig = vec_unhex(vec_str(v, "signature"), &n);
        const char *m = vec_str(v, "message_utf8");
        cr_assert(eq(str, vec_str(v, "required"), "reject"));
        vec_hex32(vec_str(v, "public_raw"), k.raw);
        cr_assert(not(key_verify(&k, m, strlen(m), sig)), "even past the loader");
        cr_assert(eq(int, public_key_from_raw(k.raw, &k, &e), ASSAY_EINPUT));
        free(sig);
    }
}

Test(results_key, vectors_ssh_public_key) {
    const char *line = vec_str(vectors_get("sshsig"), "public_key_line");
    struct public_key k;
    struct err e = {0};
    cr_assert(zero(int, public_key_from_pem(line, strlen(line), "id.pub", &k, &e)), "%s", e.text);
    json_t *submitter = json_object_get(vectors_get("keys"), "submitter");
    cr_assert(eq(str, k.keyid, vec_str(submitter, "keyid")));
}
