# record.cmake -- the library that `plimsoll record` preloads.

# With sanitizers it could not be loaded into a program without them.
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR sanitize)
    return()
endif()
include(CheckSymbolExists)
set(CMAKE_REQUIRED_DEFINITIONS -D_GNU_SOURCE)
set(CMAKE_REQUIRED_LIBRARIES ${CMAKE_DL_LIBS})
check_symbol_exists(dlvsym dlfcn.h PLIM_GLIBC) # others cannot tell the real dlsym from ours
unset(CMAKE_REQUIRED_DEFINITIONS)
unset(CMAKE_REQUIRED_LIBRARIES)
if(NOT PLIM_GLIBC)
    return()
endif()

set(record_dir ${CMAKE_SOURCE_DIR}/src/live/record)
add_library(plimsoll_record SHARED ${record_dir}/hooks.c ${record_dir}/writer.c
            ${record_dir}/caller.c)
target_include_directories(plimsoll_record PRIVATE src)
target_compile_definitions(plimsoll_record PRIVATE _GNU_SOURCE)
# hooks.c, dlsym; variables of a thread must not be allocated in somebody's first call.
target_compile_options(plimsoll_record PRIVATE -O2 -foptimize-sibling-calls
                       -ftls-model=initial-exec)
target_link_libraries(plimsoll_record PRIVATE plim_strict ${CMAKE_DL_LIBS} Threads::Threads)
target_link_options(plimsoll_record PRIVATE -Wl,-z,nodelete)
set_target_properties(plimsoll_record PROPERTIES NO_SONAME ON)
install(TARGETS plimsoll_record LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/plimsoll)
