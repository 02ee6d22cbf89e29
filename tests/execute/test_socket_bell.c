/* Sleeping on the process's own sockets: the events that end a sleep, those that do not, and the
 * bell's adaptation to how sleeps ended. */
#include "socket_bell.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

/* Never ends a sleep by itself in these tests. */
#define LONG_NS 20000000000L
#define SHORT_NS 1000000L

typedef struct connection {
    int from, to;
} connection;

static connection connection_make(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    connection made = {.from = socket(AF_INET, SOCK_STREAM, 0)};

    cr_assert_geq(listening, 0);
    cr_assert_eq(bind(listening, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(listening, 1), 0);
    cr_assert_eq(getsockname(listening, (struct sockaddr *)&address, &size), 0);
    cr_assert_eq(connect(made.from, (struct sockaddr *)&address, size), 0);
    made.to = accept(listening, NULL, NULL);
    cr_assert_geq(made.to, 0);
    close(listening);
    return made;
}

static ty_socket_bell *bell_open(void)
{
    ty_socket_bell *bell = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_socket_bell_open(&bell, &error), TY_OK, "%s", error.message);
    return bell;
}

static double slept_s(ty_socket_bell *bell, long quiet_ns, long longest_ns)
{
    const double start_s = ty_now_s();

    ty_socket_bell_sleep(bell, 0, ty_socket_bell_count(bell, 0), quiet_ns, longest_ns);
    return ty_now_s() - start_s;
}

/* Consumes the first events of newly watched sockets: they are writable. */
static void first_news_take(ty_socket_bell *bell)
{
    slept_s(bell, 0, SHORT_NS);
    slept_s(bell, 0, SHORT_NS);
}

typedef struct sender {
    ty_socket_bell *bell;
    connection connection;
    useconds_t delay;
} sender;

static void *sender_run(void *argument)
{
    const sender *own = argument;

    usleep(own->delay);
    if (own->bell != NULL)
        ty_socket_bell_wake(own->bell, 0);
    else if (write(own->connection.from, "x", 1) != 1)
        return argument;
    return NULL;
}

static void later_start(pthread_t *thread, sender *sent)
{
    cr_assert_eq(pthread_create(thread, NULL, sender_run, sent), 0);
}

static void later_join(pthread_t thread)
{
    void *failed = NULL;

    pthread_join(thread, &failed);
    cr_assert_null(failed);
}

static void sent_data_is_heard(ty_socket_bell *bell, connection pair)
{
    sender sent = {.connection = pair, .delay = 20000};
    pthread_t thread;

    later_start(&thread, &sent);
    cr_expect_lt(slept_s(bell, 0, LONG_NS), 10);
    later_join(thread);
}

Test(socket_bell, data_ends_a_sleep)
{
    ty_socket_bell *bell = bell_open();
    const connection pair = connection_make();

    first_news_take(bell);
    sent_data_is_heard(bell, pair);
    ty_socket_bell_close(bell);
}

Test(socket_bell, data_that_came_before_is_not_missed)
{
    ty_socket_bell *bell = bell_open();
    connection pair = connection_make();

    first_news_take(bell);
    cr_assert_eq(write(pair.from, "x", 1), 1);
    cr_expect_lt(slept_s(bell, 0, LONG_NS), 10);
    ty_socket_bell_close(bell);
}

Test(socket_bell, data_left_unread_rings_once)
{
    ty_socket_bell *bell = bell_open();
    connection pair = connection_make();

    first_news_take(bell);
    cr_assert_eq(write(pair.from, "x", 1), 1);
    slept_s(bell, 0, LONG_NS);
    cr_expect_geq(slept_s(bell, 0, 10 * SHORT_NS), 0.01);
    ty_socket_bell_close(bell);
}

Test(socket_bell, room_to_write_ends_a_sleep)
{
    ty_socket_bell *bell = bell_open();
    connection pair = connection_make();
    static char bytes[1 << 16];

    while (send(pair.from, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    first_news_take(bell);
    slept_s(bell, 0, SHORT_NS);
    cr_expect_geq(slept_s(bell, 0, 10 * SHORT_NS), 0.01);
    while (recv(pair.to, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    cr_expect_lt(slept_s(bell, 0, LONG_NS), 10);
    ty_socket_bell_close(bell);
}

Test(socket_bell, sockets_are_not_heard_in_the_quiet)
{
    ty_socket_bell *bell = bell_open();
    connection pair = connection_make();

    first_news_take(bell);
    cr_assert_eq(write(pair.from, "x", 1), 1);
    cr_expect_geq(slept_s(bell, 10 * SHORT_NS, LONG_NS), 0.01);
    ty_socket_bell_close(bell);
}

Test(socket_bell, a_wake_ends_a_sleep_even_in_the_quiet)
{
    ty_socket_bell *bell = bell_open();
    sender sent = {.bell = bell, .delay = 20000};
    const uint32_t seen = ty_socket_bell_count(bell, 0);
    const double start_s = ty_now_s();
    pthread_t thread;

    later_start(&thread, &sent);
    ty_socket_bell_sleep(bell, 0, seen, LONG_NS, LONG_NS);
    ty_socket_bell_sleep(bell, 0, seen, LONG_NS, LONG_NS); /* it was woken since */
    cr_expect_lt(ty_now_s() - start_s, 10);
    later_join(thread);
    ty_socket_bell_close(bell);
}

Test(socket_bell, a_connection_made_later_is_heard)
{
    ty_socket_bell *bell = bell_open();
    connection pair;

    first_news_take(bell);
    pair = connection_make();
    usleep(1100000); /* it checks for new ones at least once a second */
    first_news_take(bell);
    sent_data_is_heard(bell, pair);
    ty_socket_bell_close(bell);
}

Test(socket_bell, trust_follows_what_ended_sleeps)
{
    ty_socket_bell *bell = bell_open();
    connection pair = connection_make();
    const long least_ns = ty_socket_bell_told_ns(bell, 0);
    long most_ns, told_ns;

    first_news_take(bell);
    ty_socket_bell_found(bell, 0); /* nothing arrived: no evidence */
    cr_expect_eq(ty_socket_bell_told_ns(bell, 0), least_ns);
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(write(pair.from, "x", 1), 1);
        slept_s(bell, 0, LONG_NS);
        ty_socket_bell_found(bell, 0);
        told_ns = ty_socket_bell_told_ns(bell, 0);
        ty_socket_bell_found(bell, 0); /* one sleep counts as evidence once */
        cr_expect_eq(ty_socket_bell_told_ns(bell, 0), told_ns);
    }
    most_ns = ty_socket_bell_told_ns(bell, 0);
    cr_expect_geq(most_ns, 100 * least_ns);
    cr_expect_lt(most_ns, 1000000000);
    for (int i = 0; i < 20; i++) {
        slept_s(bell, 0, SHORT_NS);
        ty_socket_bell_found(bell, 0);
    }
    cr_expect_eq(ty_socket_bell_told_ns(bell, 0), least_ns);
    cr_expect_eq(ty_socket_bell_told_ns(bell, 1), least_ns, "the other inbox's is its own");
    ty_socket_bell_close(bell);
}
