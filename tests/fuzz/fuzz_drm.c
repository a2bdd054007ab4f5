/* fuzz_drm.c -- files of /sys and /proc that are not what they should be: the input, cut at
 * bytes of 0xff, is what they hold.  Whatever it is, the reading can be printed, and an
 * impossible number is not in it. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "live_forms.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
extern const plim_live_source plim_source_drm;

/* Below the root; the last folder of each is made before. */
static const char *const files[] = {
    "/proc/4210/fdinfo/3",
    "/proc/4210/fdinfo/4",
    "/proc/4210/stat",
    "/proc/4210/cmdline",
    "/proc/4210/cgroup",
    "/proc/4210/environ",
    "/proc/4210/status",
    "/sys/class/drm/card0/device/mem_info_vram_total",
    "/sys/class/drm/card0/device/mem_info_vram_used",
    "/sys/class/drm/card0/device/pp_dpm_sclk",
    "/etc/passwd",
};
static const char *const folders[] = {
    "/proc",      "/proc/4210",     "/proc/4210/fdinfo",    "/sys",
    "/sys/class", "/sys/class/drm", "/sys/class/drm/card0", "/sys/class/drm/card0/device",
    "/etc",
};

static char root[64];

static void remove_root(void)
{
    char path[256];
    for (size_t i = 0; i < PLIM_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s%s", root, files[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/sys/class/drm/card0/device/uevent", root);
    unlink(path);
    for (size_t i = PLIM_COUNT(folders); i--;) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        rmdir(path);
    }
    rmdir(root);
}

static void write_file(const char *name, const void *text, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s%s", root, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(text, 1, n, f) < n || fclose(f))
        abort();
}

static void make_root(void)
{
    static const char uevent[] = "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n";
    const char *tmp = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm"; /* not a disk */
    char path[256];
    snprintf(root, sizeof root, "%.40s/plimsoll-drm-XXXXXX", tmp);
    if (!mkdtemp(root))
        abort();
    for (size_t i = 0; i < PLIM_COUNT(folders); i++) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        mkdir(path, 0700);
    }
    write_file("/sys/class/drm/card0/device/uevent", uevent, sizeof uevent - 1);
    atexit(remove_root);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_reading r = {.arena = &a, .root = root};
    char state = 0;
    if (!root[0])
        make_root();
    for (size_t i = 0; i < PLIM_COUNT(files); i++) {
        const uint8_t *cut = n ? memchr(p, 0xff, n) : NULL;
        size_t part = cut ? (size_t)(cut - p) : n;
        write_file(files[i], n ? (const void *)p : "", part);
        p += part + (cut != NULL);
        n -= part + (cut != NULL);
    }
    plim_source_drm.read(&state, &r);
    plim_assert(r.n_devices == 1);
    plim_assert(r.devices->total == PLIM_LIVE_UNKNOWN || r.devices->used <= r.devices->total);
    for (uint32_t i = 0; i < r.n_processes; i++) {
        uint64_t ticks;
        plim_process_facts(&r, &r.processes[i], &ticks);
        plim_assert(r.processes[i].pid == 4210 && !r.processes[i].device);
    }
    plim_live_view v = {.devices = r.devices,
                        .n_devices = r.n_devices,
                        .processes = r.processes,
                        .n_processes = r.n_processes};
    print_forms(&v);
    plim_arena_free(&a);
    return 0;
}
