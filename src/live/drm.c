/* drm.c -- the GPUs of kernel drivers that publish what they do: /sys/class/drm, and the
 * fdinfo of each file descriptor in /proc.  No library.
 *
 * src: Documentation/gpu/drm-usage-stats.rst of Linux 6.12, for the keys of fdinfo;
 * Documentation/gpu/amdgpu/driver-misc.rst, for amdgpu's files. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "live/live.h"

enum {
    CARDS_MOST = 64,
    PATH_MOST = 512,
    NAME_MOST = 96,
    CLIENTS_MOST = 4096, /* of all processes */
};

/* A client of a card: an open file of it.  Several descriptors may be the same client. */
typedef struct client {
    uint64_t pid, id;
    uint32_t card;
    uint64_t memory;
} client;

typedef struct card {
    char pci[NAME_MOST], driver[NAME_MOST];
    uint32_t number;    /* of cardN */
    uint32_t device;    /* in the reading */
    bool shared_memory; /* no memory of its own: an integrated GPU */
} card;

/* ---- a card ------------------------------------------------------------------------------------ */

static bool find_uevent(const char *text, const char *key, char *out, size_t n)
{
    size_t length = strlen(key);
    for (const char *at = text; at && *at;) {
        size_t line = strcspn(at, "\n");
        if (line > length && !strncmp(at, key, length) && at[length] == '=') {
            snprintf(out, n, "%.*s", (int)(line - length - 1), at + length + 1);
            return true;
        }
        at += line + (at[line] == '\n');
    }
    return false;
}

static bool find_card(const char *root, uint32_t number, card *c)
{
    char text[2048];
    *c = (card){.number = number};
    if (plim_probe_text(root, text, sizeof text, "/sys/class/drm/card%u/device/uevent",
                        number) <= 0)
        return false;
    if (!find_uevent(text, "PCI_SLOT_NAME", c->pci, sizeof c->pci) &&
        !find_uevent(text, "OF_FULLNAME", c->pci, sizeof c->pci))
        snprintf(c->pci, sizeof c->pci, "card%u", number);
    return find_uevent(text, "DRIVER", c->driver, sizeof c->driver);
}

static int order_numbers(const void *pa, const void *pb)
{
    uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
    return (a > b) - (a < b);
}

/* The numbers of the cards, and not of their connectors (card0-DP-1), in order. */
static uint32_t list_cards(const char *root, uint32_t numbers[CARDS_MOST])
{
    char path[PATH_MOST];
    uint32_t n = 0;
    plim_probe_path(path, sizeof path, root, "/sys/class/drm");
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && n < CARDS_MOST && (e = readdir(folder));) {
        const char *digits = e->d_name + 4;
        if (!strncmp(e->d_name, "card", 4) && *digits && strlen(digits) < 6 &&
            !digits[strspn(digits, "0123456789")])
            numbers[n++] = (uint32_t)plim_probe_number(digits);
    }
    if (folder)
        closedir(folder);
    if (n)
        qsort(numbers, n, sizeof *numbers, order_numbers);
    return n;
}

static void read_name(plim_reading *r, plim_live_device *d, const card *c)
{
    char text[NAME_MOST];
    d->driver = plim_arena_str(r->arena, plim_str_of(c->driver)).p;
    d->pci = plim_arena_str(r->arena, plim_str_of(c->pci)).p;
    if (plim_probe_text(r->root, text, sizeof text,
                        "/sys/class/drm/card%u/device/product_name", c->number) > 1) {
        text[strcspn(text, "\n")] = '\0';
        d->name = plim_arena_str(r->arena, plim_str_of(text)).p;
    }
    if (!d->name) {
        uint64_t number = PLIM_LIVE_UNKNOWN;
        char id[NAME_MOST] = "";
        if (plim_probe_text(r->root, id, sizeof id, "/sys/class/drm/card%u/device/device",
                            c->number) > 2)
            number = strtoull(id, NULL, 16);
        d->name = number < 0x10000
                      ? plim_reading_text(r, "%s %04x", c->driver, (unsigned)number)
                      : d->driver;
    }
    if (plim_probe_text(r->root, text, sizeof text, "/sys/class/drm/card%u/device/unique_id",
                        c->number) > 1) {
        text[strcspn(text, "\n")] = '\0';
        d->uuid = plim_arena_str(r->arena, plim_str_of(text)).p;
    }
}

/* The number in the first hwmon folder of the card that has the file. */
static uint64_t probe_sensor(const char *root, uint32_t number, const char *file)
{
    char path[PATH_MOST];
    uint64_t v = PLIM_LIVE_UNKNOWN;
    plim_probe_path(path, sizeof path, root, "/sys/class/drm/card%u/device/hwmon", number);
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && v == PLIM_LIVE_UNKNOWN && (e = readdir(folder));)
        if (!strncmp(e->d_name, "hwmon", 5))
            v = plim_probe_u64(path, "/%.64s/%s", e->d_name, file);
    if (folder)
        closedir(folder);
    return v;
}

/* The line of a table of clocks that is marked with a star: "1: 1350Mhz *". */
static uint64_t probe_clock(const char *root, uint32_t number, const char *file)
{
    char text[2048];
    if (plim_probe_text(root, text, sizeof text, "/sys/class/drm/card%u/device/%s", number,
                        file) <= 0)
        return PLIM_LIVE_UNKNOWN;
    for (const char *at = text; *at;) {
        size_t line = strcspn(at, "\n");
        const char *colon = memchr(at, ':', line);
        if (colon && memchr(at, '*', line))
            return plim_probe_number(colon + 1);
        at += line + (at[line] == '\n');
    }
    return PLIM_LIVE_UNKNOWN;
}

static uint64_t at_most(uint64_t v, uint64_t most)
{
    return v <= most ? v : PLIM_LIVE_UNKNOWN;
}

static uint64_t divide_known(uint64_t v, uint64_t by)
{
    return v == PLIM_LIVE_UNKNOWN ? v : v / by;
}

static void read_sensors(plim_reading *r, plim_live_device *d, uint32_t n)
{
    enum { MILLI = 1000, FAN_MOST = 255 };
    d->busy_percent = at_most(
        plim_probe_u64(r->root, "/sys/class/drm/card%u/device/gpu_busy_percent", n), 100);
    d->memory_busy_percent = at_most(
        plim_probe_u64(r->root, "/sys/class/drm/card%u/device/mem_busy_percent", n), 100);
    d->temperature_c = divide_known(probe_sensor(r->root, n, "temp1_input"), MILLI);
    uint64_t power = probe_sensor(r->root, n, "power1_average"); /* microwatts */
    if (power == PLIM_LIVE_UNKNOWN)
        power = probe_sensor(r->root, n, "power1_input");
    d->power_mw = divide_known(power, MILLI);
    d->power_limit_mw = divide_known(probe_sensor(r->root, n, "power1_cap"), MILLI);
    uint64_t fan = at_most(probe_sensor(r->root, n, "pwm1"), FAN_MOST);
    d->fan_percent = fan == PLIM_LIVE_UNKNOWN ? fan : fan * 100 / FAN_MOST;
    d->clock_mhz = probe_clock(r->root, n, "pp_dpm_sclk");
    d->memory_clock_mhz = probe_clock(r->root, n, "pp_dpm_mclk");
}

/* amdgpu says how much memory it has and uses.  An APU has little of its own, and takes the
 * machine's (GTT).  Other drivers do not say: of them, clients tell what they use. */
static void read_memory(plim_reading *r, plim_live_device *d, card *c)
{
    static const uint64_t apu_most = UINT64_C(4) << 30;
    uint32_t n = c->number;
    uint64_t total =
        plim_probe_u64(r->root, "/sys/class/drm/card%u/device/mem_info_vram_total", n);
    uint64_t used =
        plim_probe_u64(r->root, "/sys/class/drm/card%u/device/mem_info_vram_used", n);
    uint64_t gtt =
        plim_probe_u64(r->root, "/sys/class/drm/card%u/device/mem_info_gtt_total", n);
    uint64_t gtt_used =
        plim_probe_u64(r->root, "/sys/class/drm/card%u/device/mem_info_gtt_used", n);
    if (total == PLIM_LIVE_UNKNOWN || used == PLIM_LIVE_UNKNOWN)
        return;
    if (total <= apu_most && gtt != PLIM_LIVE_UNKNOWN && gtt_used != PLIM_LIVE_UNKNOWN &&
        gtt > total) {
        d->unified = true;
        total += gtt;
        used += gtt_used;
    }
    plim_reading_memory(r, d, total, used, used <= total ? total - used : 0);
}

/* ---- the clients --------------------------------------------------------------------------------- */

/* "12 KiB", "12 MiB", "12", as fdinfo has sizes. */
static uint64_t read_size(const char *text)
{
    uint64_t v = plim_probe_number(text), by = 1;
    text += strspn(text, " \t");
    text += strspn(text, "0123456789");
    text += strspn(text, " \t");
    if (!strncmp(text, "KiB", 3) || !strncmp(text, "kB", 2))
        by = 1024;
    else if (!strncmp(text, "MiB", 3))
        by = 1024 * 1024;
    else if (!strncmp(text, "GiB", 3))
        by = 1024 * 1024 * 1024;
    return v != PLIM_LIVE_UNKNOWN && plim_mul(v, by, &v) && v <= INT64_MAX ? v
                                                                           : PLIM_LIVE_UNKNOWN;
}

/* Keys of memory, in the order of preference: what is resident, of a region on the card.
 * `shared`: of an integrated GPU. */
static const struct {
    const char *key;
    bool shared;
} memory_keys[] = {
    {"drm-resident-vram", false},  {"drm-resident-local", false},
    {"drm-total-vram", false},     {"drm-total-local", false},
    {"drm-memory-vram", false},    {"vram mem", false},
    {"drm-resident-system", true}, {"drm-resident-gtt", true},
    {"drm-resident-memory", true}, {"drm-total-system", true},
    {"drm-total-memory", true},    {"drm-memory-gtt", true},
};

typedef struct fdinfo {
    char pci[NAME_MOST], driver[NAME_MOST];
    uint64_t id;
    uint64_t memory[PLIM_COUNT(memory_keys)];
} fdinfo;

/* A region may have a number, as in drm-total-vram0; regions of one key are summed. */
static bool key_is(plim_str key, const char *name)
{
    size_t n = strlen(name);
    if (key.n < n || strncmp(key.p, name, n) != 0)
        return false;
    for (size_t i = n; i < key.n; i++)
        if (!isdigit((unsigned char)key.p[i]))
            return false;
    return true;
}

static void take_line(fdinfo *f, plim_str key, const char *value)
{
    int n = (int)strcspn(value, "\n");
    if (plim_str_is(key, "drm-pdev") || plim_str_is(key, "pdev"))
        snprintf(f->pci, sizeof f->pci, "%.*s", n, value);
    else if (plim_str_is(key, "drm-driver"))
        snprintf(f->driver, sizeof f->driver, "%.*s", n, value);
    else if (plim_str_is(key, "drm-client-id"))
        f->id = plim_probe_number(value);
    for (size_t i = 0; i < PLIM_COUNT(memory_keys); i++) {
        uint64_t v = key_is(key, memory_keys[i].key) ? read_size(value) : PLIM_LIVE_UNKNOWN;
        if (v != PLIM_LIVE_UNKNOWN)
            f->memory[i] =
                f->memory[i] == PLIM_LIVE_UNKNOWN ? v : plim_sat_add(f->memory[i], v);
    }
}

static bool parse_fdinfo(fdinfo *f, const char *text)
{
    *f = (fdinfo){.id = PLIM_LIVE_UNKNOWN};
    for (size_t i = 0; i < PLIM_COUNT(memory_keys); i++)
        f->memory[i] = PLIM_LIVE_UNKNOWN;
    for (const char *at = text; *at;) {
        size_t line = strcspn(at, "\n");
        const char *colon = memchr(at, ':', line);
        if (colon) {
            const char *value = colon + 1 + strspn(colon + 1, " \t");
            take_line(f, (plim_str){at, (size_t)(colon - at)}, value);
        }
        at += line + (at[line] == '\n');
    }
    return f->driver[0] != '\0';
}

static uint64_t choose_memory(const fdinfo *f, bool shared)
{
    for (size_t i = 0; i < PLIM_COUNT(memory_keys); i++)
        if (f->memory[i] != PLIM_LIVE_UNKNOWN && memory_keys[i].shared == shared)
            return f->memory[i];
    return PLIM_LIVE_UNKNOWN;
}

typedef struct clients {
    card cards[CARDS_MOST];
    uint32_t n_cards;
    client *list;
    uint32_t n;
} clients;

/* The card of an fdinfo: by its address or, of a device that is not on PCI, by its driver. */
static uint32_t card_of(const clients *c, const fdinfo *f)
{
    for (uint32_t i = 0; i < c->n_cards; i++)
        if (!strcmp(*f->pci ? c->cards[i].pci : c->cards[i].driver,
                    *f->pci ? f->pci : f->driver))
            return i;
    return UINT32_MAX;
}

static void add_client(clients *c, uint64_t pid, const fdinfo *f)
{
    uint32_t at = card_of(c, f);
    if (at == UINT32_MAX || c->n == CLIENTS_MOST)
        return;
    for (uint32_t i = 0; i < c->n && f->id != PLIM_LIVE_UNKNOWN; i++)
        if (c->list[i].card == at && c->list[i].id == f->id)
            return;
    uint64_t own = choose_memory(f, false);
    if (own == PLIM_LIVE_UNKNOWN || c->cards[at].shared_memory) {
        uint64_t shared = choose_memory(f, true);
        own = own == PLIM_LIVE_UNKNOWN      ? shared
              : shared == PLIM_LIVE_UNKNOWN ? own
                                            : plim_sat_add(own, shared);
    }
    c->list[c->n++] = (client){.pid = pid, .id = f->id, .card = at, .memory = own};
}

static void read_descriptors(plim_reading *r, clients *c, uint64_t pid)
{
    char path[PATH_MOST], text[4096];
    plim_probe_path(path, sizeof path, r->root, "/proc/%" PRIu64 "/fdinfo", pid);
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        fdinfo f;
        if (isdigit((unsigned char)e->d_name[0]) &&
            plim_probe_text(path, text, sizeof text, "/%.32s", e->d_name) > 0 &&
            strstr(text, "drm-") && parse_fdinfo(&f, text))
            add_client(c, pid, &f);
    }
    if (folder)
        closedir(folder);
}

static void read_clients(plim_reading *r, clients *c)
{
    char path[PATH_MOST];
    plim_probe_path(path, sizeof path, r->root, "/proc");
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        uint64_t pid = plim_probe_number(e->d_name);
        if (pid && pid <= PLIM_LIVE_PID_MOST)
            read_descriptors(r, c, pid);
    }
    if (folder)
        closedir(folder);
}

/* Compute processes of AMD open /dev/kfd, which has no fdinfo; the driver counts them itself.
 * src: drivers/gpu/drm/amd/amdkfd/kfd_process.c, the files vram_GPUID. */
static uint64_t probe_kfd(const char *root, uint64_t pid)
{
    char path[PATH_MOST];
    uint64_t sum = PLIM_LIVE_UNKNOWN;
    plim_probe_path(path, sizeof path, root, "/sys/class/kfd/kfd/proc/%" PRIu64, pid);
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        uint64_t v = strncmp(e->d_name, "vram_", 5)
                         ? PLIM_LIVE_UNKNOWN
                         : plim_probe_u64(path, "/%.64s", e->d_name);
        if (v != PLIM_LIVE_UNKNOWN)
            sum = sum == PLIM_LIVE_UNKNOWN ? v : plim_sat_add(sum, v);
    }
    if (folder)
        closedir(folder);
    return sum;
}

static uint32_t count_driver(const clients *c, const char *driver, uint32_t *last)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_cards; i++)
        if (!strcmp(c->cards[i].driver, driver)) {
            *last = i;
            n++;
        }
    return n;
}

/* Which card a process of kfd is on is told by the number of a topology node only; with one
 * card there is no question. */
static void read_kfd(plim_reading *r, clients *c)
{
    char path[PATH_MOST];
    uint32_t at = 0;
    if (count_driver(c, "amdgpu", &at) != 1)
        return;
    plim_probe_path(path, sizeof path, r->root, "/sys/class/kfd/kfd/proc");
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        uint64_t pid = plim_probe_number(e->d_name);
        uint64_t memory =
            pid && pid <= PLIM_LIVE_PID_MOST ? probe_kfd(r->root, pid) : PLIM_LIVE_UNKNOWN;
        if (memory != PLIM_LIVE_UNKNOWN && c->n < CLIENTS_MOST)
            c->list[c->n++] =
                (client){.pid = pid, .id = PLIM_LIVE_UNKNOWN, .card = at, .memory = memory};
    }
    if (folder)
        closedir(folder);
}

static int order_clients(const void *pa, const void *pb)
{
    const client *a = pa, *b = pb;
    if (a->card != b->card)
        return a->card < b->card ? -1 : 1;
    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* A process is the sum of its clients. */
static void add_processes(plim_reading *r, clients *c)
{
    plim_live_process *p = NULL;
    uint32_t card_before = UINT32_MAX;
    if (c->n)
        qsort(c->list, c->n, sizeof *c->list, order_clients);
    for (uint32_t i = 0; i < c->n; i++) {
        const client *k = &c->list[i];
        if (!p || p->pid != k->pid || card_before != k->card)
            p = plim_reading_process(r, k->pid, "drm");
        if (!p)
            return;
        card_before = k->card;
        p->device = c->cards[k->card].device;
        if (k->memory != PLIM_LIVE_UNKNOWN)
            p->memory = p->memory == PLIM_LIVE_UNKNOWN ? k->memory
                                                       : plim_sat_add(p->memory, k->memory);
    }
}

/* A card whose driver does not say what it has: an integrated one takes the machine's memory,
 * as its clients show; how much a separate one has is not known. */
static void guess_memory(plim_reading *r, plim_live_device *d, const clients *c,
                         uint32_t card_at)
{
    uint64_t used = 0;
    bool any = false;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->list[i].card == card_at && c->list[i].memory != PLIM_LIVE_UNKNOWN) {
            used = plim_sat_add(used, c->list[i].memory);
            any = true;
        }
    if (any)
        d->used = used;
    d->trouble = plim_reading_text(
        r,
        "the driver %s does not say how much memory there is; used is the sum of the "
        "processes that may be read",
        c->cards[card_at].driver);
}

static void read_drm(void *state, plim_reading *r)
{
    uint32_t index = 0, numbers[CARDS_MOST], n = list_cards(r->root, numbers);
    clients *c = n ? PLIM_NEW(r->arena, clients) : NULL;
    (void)state;
    if (!c || !(c->list = PLIM_NEW_N(r->arena, client, CLIENTS_MOST)))
        return;
    for (uint32_t i = 0; i < n; i++) {
        card *k = &c->cards[c->n_cards];
        if (!find_card(r->root, numbers[i], k) || !strcmp(k->driver, "nvidia"))
            continue;
        plim_live_device *d = plim_reading_device(r, "drm");
        if (!d)
            break;
        k->device = r->n_devices - 1;
        d->index = index++;
        read_name(r, d, k);
        read_memory(r, d, k);
        read_sensors(r, d, k->number);
        k->shared_memory = d->unified;
        c->n_cards++;
    }
    if (!c->n_cards)
        return;
    read_clients(r, c);
    read_kfd(r, c);
    for (uint32_t i = 0; i < c->n_cards; i++) {
        plim_live_device *d = &r->devices[c->cards[i].device];
        if (d->total == PLIM_LIVE_UNKNOWN && !d->trouble)
            guess_memory(r, d, c, i);
    }
    add_processes(r, c);
}

static void open_drm(void *state, const plim_live_options *o, plim_arena *a,
                     plim_live_look *look)
{
    char path[PATH_MOST];
    card c;
    bool nvidia = false;
    (void)state;
    plim_probe_path(path, sizeof path, o->root, "/sys/class/drm");
    look->where = plim_arena_str(a, plim_str_of(path)).p;
    DIR *folder = opendir(path);
    look->found = folder ? "no card whose driver reports its use"
                         : "no such folder: the kernel has no GPU driver";
    if (folder)
        closedir(folder);
    uint32_t numbers[CARDS_MOST], n = list_cards(o->root, numbers);
    for (uint32_t i = 0; i < n; i++) {
        if (!find_card(o->root, numbers[i], &c))
            continue;
        if (strcmp(c.driver, "nvidia") != 0) {
            look->found = NULL;
            return;
        }
        nvidia = true;
    }
    if (nvidia)
        look->found = "only cards of the driver nvidia, which NVML reports";
}

static void close_drm(void *state) { (void)state; }

const plim_live_source plim_source_drm = {
    .name = "drm",
    .state_size = 1,
    .open = open_drm,
    .read = read_drm,
    .close = close_drm,
};
