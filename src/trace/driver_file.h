/* driver_file.h -- a recording of CUDA's driver as it lies in the file (.plrec): what the
 * preloaded recorder writes and driver.c reads.  docs/formats/recording.md describes it.
 *
 * The file is a head and then chunks, all of one size.  A chunk belongs to one thread of one
 * process, which alone writes to it; whoever needs one takes the next by adding to `end`.  A
 * chunk is a header and then slots of 64 bytes: an event, or a text, which is an event and the
 * slots that hold its bytes.  `used` counts the bytes that are complete, so that a process
 * that is killed leaves whole events.  Numbers are little-endian, as those of the machine. */
#ifndef PLIM_DRIVER_FILE_H
#define PLIM_DRIVER_FILE_H

#include <stdint.h>

#define PLIM_DRIVER_MAGIC "PLREC\r\n\x1a"
#define PLIM_DRIVER_CHUNK_MAGIC UINT32_C(0x4b4e4843) /* "CHNK" */

enum {
    PLIM_DRIVER_VERSION = 1,
    PLIM_DRIVER_CHUNK = 1 << 16, /* a multiple of every page size, and the size of the head */
    PLIM_DRIVER_SLOT = 64,
    PLIM_DRIVER_TEXT_MOST = 512, /* bytes of a text; of a longer one the end is kept */
    PLIM_DRIVER_TEXTS = 8192     /* numbers of texts are less than this; 0 is "not known" */
};

/* What happened.  "kind, what `address`, `bytes` and `other` are" */
#define PLIM_DRIVER_KINDS(X)                                                                  \
    X(TEXT)          /* -, length, -; `owner` is its number */                                \
    X(PROCESS)       /* parent, -, -; `owner`: the command */                                 \
    X(ALLOC)         /* address, bytes, context */                                            \
    X(MANAGED)       /* the same */                                                           \
    X(POOL)          /* address, bytes, stream: stream-ordered */                             \
    X(FREE)          /* address: of the three above */                                        \
    X(HOST)          /* address, bytes: pinned, or registered */                              \
    X(HOST_FREE)     /* address */                                                            \
    X(ARRAY)         /* handle, bytes as its format says, context */                          \
    X(ARRAY_FREE)    /* handle */                                                             \
    X(CREATE)        /* handle, bytes: physical memory of cuMemCreate */                      \
    X(RETAIN)        /* handle: one owner more */                                             \
    X(RELEASE)       /* handle: one owner less */                                             \
    X(MAP)           /* address, bytes, handle */                                             \
    X(UNMAP)         /* address, bytes */                                                     \
    X(CONTEXT)       /* context: made, or the primary one of `device` retained */             \
    X(CONTEXT_END)   /* context destroyed */                                                  \
    X(PRIMARY_LEFT)  /* -: the primary context of `device` released once */                   \
    X(PRIMARY_RESET) /* -: the same, whoever retains it */                                    \
    X(MODULE)        /* handle: code loaded */                                                \
    X(GRAPH)         /* handle: a CUDA graph instantiated */                                  \
    X(READING)       /* -, free bytes of the device, its total: cuMemGetInfo */               \
    X(EXIT)          /* -: the process ends by exit() */                                      \
    X(GRAPH_NODE)    /* address, bytes, graph or stream: held once the graph is launched */   \
    X(GRAPH_MEMORY)  /* -, bytes that the graphs of `device` hold from now on, context */     \
    X(SHARED)        /* address, bytes, context: memory of another process, opened */         \
    X(IMPORT)        /* handle: physical memory that another process exported */

typedef enum plim_driver_kind {
#define X(name) PLIM_DRIVER_##name,
    PLIM_DRIVER_KINDS(X)
#undef X
        PLIM_DRIVER_KIND_COUNT
} plim_driver_kind;

/* At the start of the file; the rest of the first PLIM_DRIVER_CHUNK bytes is the command,
 * its words separated by spaces, and zeros. */
typedef struct plim_driver_head {
    char magic[8];
    uint32_t version;
    uint32_t chunk;   /* PLIM_DRIVER_CHUNK */
    uint64_t end;     /* of the chunks that were handed out */
    uint64_t lost;    /* events for which there was no room, as on a full disk */
    uint64_t began;   /* ns, as in events */
    uint64_t unix_ns; /* the same moment, since 1970 */
    uint64_t ended;   /* ns; 0: nobody saw the command end */
    int32_t status;   /* of the command, as a shell has it */
    uint32_t command_bytes;
} plim_driver_head;

typedef struct plim_driver_chunk {
    uint32_t magic;
    uint32_t used;    /* bytes after this header that are complete */
    uint64_t process; /* tells processes and programs of one pid apart */
    uint32_t pid, reserved[11];
} plim_driver_chunk;

typedef struct plim_driver_event {
    uint64_t time; /* ns of CLOCK_MONOTONIC: after an allocation, before a release */
    uint64_t address, bytes, other;
    uint32_t thread;
    uint32_t owner;      /* number of a text: the library that called, a path */
    uint32_t file, line; /* of Python: number of a text; 0: not known */
    uint16_t kind;       /* plim_driver_kind */
    int16_t device;      /* -1: none, or not known */
    int32_t result;      /* 0, or the driver's error: of an allocation that failed */
    uint64_t free;       /* bytes on the device when it failed; UINT64_MAX: not known */
} plim_driver_event;

#endif
