# zig.cmake -- a toolchain: clang, headers and C libraries of all targets in one download.
#
#     cmake -D CMAKE_TOOLCHAIN_FILE=cmake/zig.cmake -D ZIG=/path/to/zig -D ZIG_TARGET=aarch64-linux-musl
#
# tools/dist.py uses it.  ZLIB_INCLUDE_DIR and ZLIB_LIBRARY have to be given, too: those of this
# machine are for this machine.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ZIG ZIG_TARGET)
string(REGEX MATCH "^[^-]+" CMAKE_SYSTEM_PROCESSOR ${ZIG_TARGET})
if(ZIG_TARGET MATCHES "-macos")
    set(CMAKE_SYSTEM_NAME Darwin)
elseif(ZIG_TARGET MATCHES "-windows")
    set(CMAKE_SYSTEM_NAME Windows)
else()
    set(CMAKE_SYSTEM_NAME Linux)
endif()

# CMake wants programs without arguments.
function(zig_tool variable name command)
    set(script ${CMAKE_BINARY_DIR}/zig/${name})
    file(WRITE ${script} "#!/bin/sh\nexec '${ZIG}' ${command} \"$@\"\n")
    file(CHMOD ${script} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
    set(${variable} ${script} CACHE FILEPATH "" FORCE)
endfunction()
zig_tool(CMAKE_C_COMPILER cc "cc -target ${ZIG_TARGET}")
zig_tool(CMAKE_AR ar ar)
zig_tool(CMAKE_RANLIB ranlib ranlib)
if(CMAKE_SYSTEM_NAME STREQUAL "Windows")
    zig_tool(CMAKE_RC_COMPILER rc rc)
endif()

# No paths, no build ids, no debug information, and nothing that zig adds by itself.  An object
# for Windows has its own name in it even so, which is to be a relative one.
set(CMAKE_C_FLAGS_INIT "-fno-sanitize=all -ffile-prefix-map=${CMAKE_SOURCE_DIR}=. -g0")
string(APPEND CMAKE_C_FLAGS_INIT " -ffile-compilation-dir=.")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-s")
if(ZIG_TARGET MATCHES "-linux-gnu")
    set(CMAKE_EXE_LINKER_FLAGS_INIT "-s -pie")
endif()
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-s")

# Libraries of this machine are not for the target: programs that people download have neither
# the terminal view nor the log of `plimsoll top`, and say how to get them.
set(CMAKE_DISABLE_FIND_PACKAGE_Curses ON)
set(CMAKE_DISABLE_FIND_PACKAGE_SQLite3 ON)
