/* ranks.c -- see ranks.h */
#include "ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the options ---------------------------------------------------------------- */

/* Launchers start their own processes, with ranks of their own. */
static const char *ranks_launcher(char **command)
{
    static const char *const names[] = {"torchrun", "torch.distributed.run",
                                        "torch.distributed.launch", "deepspeed"};
    for (char **word = command; *word && word < command + 3; word++) {
        const char *slash = strrchr(*word, '/'), *name = slash ? slash + 1 : *word;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strcmp(name, names[i]) == 0)
                return names[i];
    }
    return NULL;
}

static int ranks_list(const char *text, plim_ranks *out)
{
    for (const char *p = text;; p++) {
        char *end = NULL;
        long rank = strtol(p, &end, 10);
        if (end == p || (*end && *end != ',') || *p == '-' || *p == '+')
            return plim_console_usage(
                "'--rank': expected a rank, a list as in 0,3,7, or all, got '%s'", text);
        if (rank >= out->world)
            return plim_console_usage("'--rank': %ld is not in 0..%d (--world %d)", rank,
                                      out->world - 1, out->world);
        if (out->n && rank <= out->rank[out->n - 1])
            return plim_console_usage("'--rank': %ld does not come after %d: ranks ascend",
                                      rank, out->rank[out->n - 1]);
        if (out->n == PLIM_RANKS_MOST)
            return plim_console_usage("'--rank': more than %d ranks", (int)PLIM_RANKS_MOST);
        out->rank[out->n++] = (int)rank;
        p = end;
        if (!*p)
            return PLIM_EXIT_DONE;
    }
}

/* A TCP port of this host that nobody uses; 0: there is none. */
static int ranks_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;
    int s = socket(AF_INET, SOCK_STREAM, 0), port = 0;
    if (s >= 0 && !bind(s, (struct sockaddr *)&at, n) &&
        !getsockname(s, (struct sockaddr *)&at, &n))
        port = ntohs(at.sin_port);
    if (s >= 0)
        close(s);
    return port;
}

int plim_ranks_read(const plim_args *a, plim_ranks *out)
{
    *out = (plim_ranks){.world = a->world};
    if (a->rank && !a->world)
        return plim_console_usage("'--rank' needs '--world N', the number of ranks");
    if (!a->world)
        return PLIM_EXIT_DONE;
    if (!a->rank)
        return plim_console_usage("'--world' needs '--rank': a rank in 0..%d, a list, or all",
                                  a->world - 1);
    const char *launcher = ranks_launcher(a->command);
    if (launcher)
        return plim_console_usage(
            "'--world' and %s both start ranks: use '--world' with the script itself, or %s "
            "without '--world'",
            launcher, launcher);
    out->all = strcmp(a->rank, "all") == 0;
    if (!out->all)
        return ranks_list(a->rank, out);
    if (a->world > PLIM_RANKS_MOST)
        return plim_console_usage(
            "'--rank all' starts a process for each of %d ranks, and %d is "
            "the most: name some, as in '--rank 0,%d'",
            a->world, (int)PLIM_RANKS_MOST, a->world - 1);
    while (out->n < a->world) {
        out->rank[out->n] = out->n;
        out->n++;
    }
    out->port = ranks_port();
    return PLIM_EXIT_DONE;
}

void plim_ranks_environment(const plim_ranks *r, int rank, int cards)
{
    int node = rank / cards, left = r->world - node * cards;
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"RANK", rank},
                   {"WORLD_SIZE", r->world},
                   {"LOCAL_RANK", rank % cards},
                   {"LOCAL_WORLD_SIZE", left < cards ? left : cards},
                   {"GROUP_RANK", node},
                   {"GROUP_WORLD_SIZE", (r->world - 1) / cards + 1},
                   {"ROLE_RANK", rank},
                   {"ROLE_WORLD_SIZE", r->world},
                   {"MASTER_PORT", r->port ? r->port : 29500},
                   {"PLIMSOLL_RUN_ALONE", !r->all}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", numbers[i].value);
        setenv(numbers[i].name, text, 1);
    }
    setenv("MASTER_ADDR", "127.0.0.1", 1);
}

/* ---- the table -------------------------------------------------------------------- */

int plim_ranks_worse(const plim_rank_row *a, const plim_rank_row *b)
{
    if (a->fits != b->fits && (!a->fits || !b->fits))
        return a->fits ? 1 : -1;
    if (a->allocated != b->allocated)
        return a->allocated > b->allocated ? -1 : 1;
    return a->rank - b->rank;
}

static void ranks_size(char *out, size_t n, unsigned long long bytes, bool si)
{
    const double unit = si ? 1e6 : 1048576.0;
    snprintf(out, n, "%.2f %s", (double)bytes / unit, si ? "MB" : "MiB");
}

void plim_ranks_table(plim_console *c, const plim_style *st, plim_render render,
                      const plim_rank_row *rows, int n)
{
    static const char *const words[] = {"unknown", "no", "yes"};
    const bool text = render == PLIM_TEXT;
    plim_console_puts(c, text ? "Ranks\n  rank  peak allocated        reserved  fits\n"
                              : "## Ranks\n\n| rank | peak allocated | reserved | fits |\n"
                                "| ---: | ---: | ---: | --- |\n");
    for (int i = 0; i < n; i++) {
        char line[96], allocated[32], reserved[32];
        const char *fits = words[rows[i].fits + 1];
        ranks_size(allocated, sizeof allocated, rows[i].allocated, st->si);
        ranks_size(reserved, sizeof reserved, rows[i].reserved, st->si);
        if (text)
            snprintf(line, sizeof line, "  %4d  %14s  %14s  %s\n", rows[i].rank, allocated,
                     reserved, fits);
        else
            snprintf(line, sizeof line, "| %d | %s | %s | %s |\n", rows[i].rank, allocated,
                     reserved, fits);
        plim_console_puts(c, line);
    }
    plim_console_puts(c, "\n");
}
