//! A worker of datafusion-distributed, at a port of this machine. It has nothing of xql-ffi.

use datafusion_distributed::Worker;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).ok_or("worker PORT")?.parse()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Server::builder().add_service(Worker::default().into_worker_server()).serve(address).await?;
    Ok(())
}
