//! Devices that are not open are freed with the list.

use sideway::ibverbs::device::DeviceList;

fn keep(list: DeviceList) {
    let device = list.get(0).unwrap();
    drop(list);
    drop(device.open());
}

fn main() {}
