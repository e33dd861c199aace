/* The scripted server: a thread that accepts, a thread per connection, blocking sockets. */
#include "tests/backends/mock_server.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { POSTS_MAX = 4096, CONNECTIONS_MAX = 1024 };

struct mock {
    struct mock_config c;
    int listen_fd, stop_fd, port;
    pthread_t acceptor;
    pthread_mutex_t lock;
    int nposts, nconnections;
    char *post[POSTS_MAX], *get;
    pthread_t thread[CONNECTIONS_MAX];
};

struct connection {
    struct mock *m;
    int fd;
};

/* False when the server is to stop. */
static bool readable(struct mock *m, int fd, int timeout_ms) {
    struct pollfd p[2] = {{fd, fd >= 0 ? POLLIN : 0, 0}, {m->stop_fd, POLLIN, 0}};
    poll(p, 2, timeout_ms);
    return !(p[1].revents & POLLIN);
}

static bool send_all(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static bool send_pieces(int fd, const char *p, size_t n, size_t piece) {
    while (n) {
        size_t k = n < piece ? n : piece;
        if (!send_all(fd, p, k))
            return false;
        p += k;
        n -= k;
        usleep(200);
    }
    return true;
}

static bool send_bytes(int fd, const char *p, size_t n) {
    char *b = malloc(n + 64);
    int k = snprintf(b, 64, "%zx\r\n", n);
    memcpy(b + k, p, n);
    memcpy(b + k + n, "\r\n", 2);
    bool ok = send_all(fd, b, (size_t)k + n + 2);
    free(b);
    return ok;
}

static bool send_chunk(int fd, const char *before, const char *text, const char *after) {
    size_t n = strlen(before) + strlen(text) + strlen(after), size = n + 64;
    char *b = malloc(size);
    int k = snprintf(b, size, "%zx\r\n%s%s%s\r\n", n, before, text, after);
    bool ok = send_all(fd, b, (size_t)k);
    free(b);
    return ok;
}

/* False: the connection is over. */
static bool play(struct connection *x, const struct mock_step *s) {
    static const char head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
        "Transfer-Encoding: chunked\r\n";
    for (; s->action != MOCK_END; s++) {
        bool ok = true;
        const char *text = s->text ? s->text : "";
        switch (s->action) {
        case MOCK_SEND:
            ok = s->value > 0 ? send_pieces(x->fd, text, strlen(text), (size_t)s->value)
                              : send_all(x->fd, text, strlen(text));
            break;
        case MOCK_HEAD:
            ok = send_all(x->fd, head, sizeof head - 1) && send_all(x->fd, text, strlen(text)) &&
                 send_all(x->fd, "\r\n", 2);
            break;
        case MOCK_CHUNK:
            ok = send_chunk(x->fd, "", text, "");
            break;
        case MOCK_BYTES:
            ok = send_bytes(x->fd, text, (size_t)s->value);
            break;
        case MOCK_EVENT:
            ok = send_chunk(x->fd, "data: ", text, "\n\n");
            break;
        case MOCK_LAST:
            ok = send_all(x->fd, "0\r\n\r\n", 5);
            break;
        case MOCK_SLEEP:
            ok = readable(x->m, -1, s->value);
            break;
        case MOCK_RESET:
            setsockopt(x->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
            return false;
        case MOCK_HANG: {
            char c;
            while (readable(x->m, x->fd, -1) && recv(x->fd, &c, 1, 0) > 0)
                ;
            return false;
        }
        default:
            return false;
        }
        if (!ok)
            return false;
    }
    return true;
}

static bool answer_get(struct connection *x) {
    const struct mock_config *c = &x->m->c;
    static const struct mock_step hang[] = {{MOCK_HANG, NULL, 0}, {MOCK_END, NULL, 0}};
    if (c->hang_models)
        return play(x, hang);
    const char *body =
        c->models ? c->models
                  : "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\"}]}";
    char head[2048];
    int n =
        snprintf(head, sizeof head,
                 "HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n",
                 c->models_status ? c->models_status : "200 OK",
                 c->models_headers ? c->models_headers : "", strlen(body));
    return send_all(x->fd, head, (size_t)n) && send_all(x->fd, body, strlen(body));
}

/* One request, head and body, NUL-terminated; NULL when the connection ended. */
static char *read_request(struct connection *x) {
    size_t n = 0, cap = 65536, want = 0;
    char *b = malloc(cap);
    for (;;) {
        if (n + 1 == cap)
            b = realloc(b, cap *= 2);
        if (!readable(x->m, x->fd, -1))
            break;
        ssize_t k = recv(x->fd, b + n, cap - n - 1, 0);
        if (k <= 0)
            break;
        n += (size_t)k;
        b[n] = '\0';
        char *end = strstr(b, "\r\n\r\n");
        if (!want && end) {
            char *length = strcasestr(b, "\r\ncontent-length:");
            want = (size_t)(end - b) + 4 +
                   (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
        }
        if (want && n >= want)
            return b;
    }
    free(b);
    return NULL;
}

static void *serve(void *arg) {
    struct connection *x = arg;
    struct mock *m = x->m;
    char *request;
    int served = 0;
    while ((request = read_request(x))) {
        if (strncmp(request, "POST ", 5) != 0) {
            pthread_mutex_lock(&m->lock);
            free(m->get);
            m->get = request;
            pthread_mutex_unlock(&m->lock);
            if (!answer_get(x))
                break;
            continue;
        }
        pthread_mutex_lock(&m->lock);
        int k = m->nposts++;
        m->post[k % POSTS_MAX] = request;
        pthread_mutex_unlock(&m->lock);
        if (m->c.posts_before_idle_close && served++ == m->c.posts_before_idle_close)
            break;
        int i = 0;
        while (i < k && m->c.replies[i + 1])
            i++;
        if (!play(x, m->c.replies[i]))
            break;
    }
    close(x->fd);
    free(x);
    return NULL;
}

static void *accept_all(void *arg) {
    struct mock *m = arg;
    while (readable(m, m->listen_fd, -1)) {
        int fd = accept(m->listen_fd, NULL, NULL);
        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        if (m->c.speak_first)
            send_all(fd, m->c.speak_first, strlen(m->c.speak_first));
        struct connection *x = malloc(sizeof *x);
        *x = (struct connection){m, fd};
        pthread_mutex_lock(&m->lock);
        int k = m->nconnections++;
        pthread_mutex_unlock(&m->lock);
        pthread_create(&m->thread[k], NULL, serve, x);
    }
    return NULL;
}

struct mock *mock_start(const struct mock_config *c) {
    struct mock *m = calloc(1, sizeof *m);
    m->c = *c;
    m->stop_fd = eventfd(0, 0);
    pthread_mutex_init(&m->lock, NULL);
    if (c->unix_path) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        snprintf(a.sun_path, sizeof a.sun_path, "%s", c->unix_path);
        m->listen_fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (bind(m->listen_fd, (struct sockaddr *)&a, sizeof a))
            abort();
    } else {
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)c->port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t n = sizeof a;
        m->listen_fd = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(m->listen_fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
        if (bind(m->listen_fd, (struct sockaddr *)&a, sizeof a) ||
            getsockname(m->listen_fd, (struct sockaddr *)&a, &n))
            abort();
        m->port = ntohs(a.sin_port);
    }
    if (listen(m->listen_fd, 512) || pthread_create(&m->acceptor, NULL, accept_all, m))
        abort();
    return m;
}

int mock_port(const struct mock *m) {
    return m->port;
}

int mock_posts(const struct mock *m) {
    return m->nposts;
}

int mock_connections(const struct mock *m) {
    return m->nconnections;
}

const char *mock_post(const struct mock *m, int k) {
    return k < m->nposts ? m->post[k] : NULL;
}

const char *mock_get(const struct mock *m) {
    return m->get;
}

void mock_stop(struct mock *m) {
    uint64_t one = 1;
    if (write(m->stop_fd, &one, sizeof one) != sizeof one)
        abort();
    pthread_join(m->acceptor, NULL);
    for (int i = 0; i < m->nconnections; i++)
        pthread_join(m->thread[i], NULL);
    for (int i = 0; i < m->nposts && i < POSTS_MAX; i++)
        free(m->post[i]);
    free(m->get);
    close(m->listen_fd);
    close(m->stop_fd);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
