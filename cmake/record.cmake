# record.cmake -- the library that `plimsoll record` preloads, and its tests.

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

# ---- tests ------------------------------------------------------------------

if(NOT PLIM_TESTS OR NOT Python3_FOUND OR NOT TARGET plimsoll)
    return()
endif()
set(record_tests ${CMAKE_SOURCE_DIR}/tests/record)
set(record_out ${CMAKE_BINARY_DIR}/record)
add_executable(record_program ${record_tests}/program.c)
target_link_libraries(record_program PRIVATE plim_flags ${CMAKE_DL_LIBS} Threads::Threads)
add_executable(record_linked ${record_tests}/linked.c)
add_library(record_workspace SHARED ${record_tests}/workspace.c)
target_link_libraries(record_workspace PRIVATE plim_flags plim_libcudart_so_13)
set_target_properties(record_workspace PROPERTIES OUTPUT_NAME workspace
                      LIBRARY_OUTPUT_DIRECTORY ${record_out})
target_link_libraries(record_linked PRIVATE plim_flags plim_libcuda_so_1 record_workspace)
add_library(record_next MODULE ${record_tests}/next.c)
target_link_libraries(record_next PRIVATE plim_flags ${CMAKE_DL_LIBS})
set_target_properties(record_next PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME program-next
                      LIBRARY_OUTPUT_DIRECTORY ${record_out})
set_target_properties(record_program PROPERTIES OUTPUT_NAME program)
set_target_properties(record_linked PROPERTIES OUTPUT_NAME program-linked)
set_target_properties(record_program record_linked PROPERTIES
                      RUNTIME_OUTPUT_DIRECTORY ${record_out})
add_test(NAME record.driver
         COMMAND ${Python3_EXECUTABLE} ${record_tests}/check.py $<TARGET_FILE:plimsoll>
                 ${stub_out} ${record_out}/program)
add_test(NAME record.endings
         COMMAND ${Python3_EXECUTABLE} ${record_tests}/endings.py $<TARGET_FILE:plimsoll>
                 ${stub_out})
set_tests_properties(record.driver record.endings PROPERTIES TIMEOUT 600)
foreach(framework torch llama)
    add_test(NAME record.${framework}
             COMMAND ${Python3_EXECUTABLE} ${record_tests}/frameworks.py
                     $<TARGET_FILE:plimsoll> ${stub_out} ${framework})
    set_tests_properties(record.${framework} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
endforeach()
add_test(NAME record.card
         COMMAND ${Python3_EXECUTABLE} ${record_tests}/card.py $<TARGET_FILE:plimsoll>)
set_tests_properties(record.card PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)

# ---- what is true of `run`, too ------------------------------------------------

# Standard streams that are closed or full, and the folders in TMPDIR.
add_test(NAME shell.streams
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/shell/streams.py
                 $<TARGET_FILE:plimsoll>)
add_test(NAME run.folders
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/run/folders.py
                 $<TARGET_FILE:plimsoll>)
