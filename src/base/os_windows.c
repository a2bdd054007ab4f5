/* os_windows.c -- pages, processors and memory of Windows: see os.h. */
#include "base/os.h"

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

/* ---- pages: large ones need a privilege that users do not have ---------- */

void *plim_os_pages(size_t bytes)
{
    (void)bytes;
    return NULL;
}

void plim_os_pages_free(void *p, size_t bytes) { (void)p, (void)bytes; }

void *plim_os_pages_more(void *p, size_t was, size_t bytes)
{
    (void)p, (void)was, (void)bytes;
    return NULL;
}

/* ---- processors -------------------------------------------------------- */

uint32_t plim_os_processors(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwNumberOfProcessors > 1 ? info.dwNumberOfProcessors : 1;
}

uint64_t plim_os_memory(void)
{
    MEMORYSTATUSEX m = {.dwLength = sizeof m};
    return GlobalMemoryStatusEx(&m) ? PLIM_MIN(m.ullTotalPhys, m.ullTotalVirtual) : 4ull << 30;
}
